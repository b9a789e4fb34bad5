"""Every path there is: method, handler, the scope it needs, its query parameters, what it reads and answers.

The application, `/openapi.json` and the tests are all made from this one table. To add a call: a line here, its handler, a story in
`tests/api/`. `{id:.+}` because ids may hold slashes; so the longer paths come before the shorter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from hetsched.api import agents, cluster, columns, graphs, operations, profiles, schemas, submit, tasks, watch
from hetsched.api.call import Call


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`scope` None: open to everybody. `media`: what the body may be. `answers`: status → Struct, media (one or more), or None for free JSON.
    A tuple of Structs is one of them."""

    method: str
    path: str
    handler: Callable[[Call], Awaitable[web.StreamResponse]]
    scope: str | None
    summary: str
    parameters: tuple[str, ...] = ()
    reads: Any = None
    media: tuple[str, ...] = ("application/json",)
    answers: dict[int, Any] = msgspec.field(default_factory=lambda: {200: None})

    @property
    def name(self) -> str:
        """For operationId."""
        return f"{self.handler.__module__.rpartition('.')[2]}_{self.handler.__name__}"


def _task(verb: str, handler: Any, summary: str, scope: str, reads: Any = None) -> Route:
    return Route(
        method="POST", path=f"/v1/tasks/{{id:.+}}/{verb}", handler=handler, scope=scope, summary=summary, reads=reads
    )


def _node(verb: str, handler: Any, summary: str) -> Route:
    return Route(method="POST", path=f"/v1/nodes/{{name}}/{verb}", handler=handler, scope="admin", summary=summary)


def _cancel(path: str, handler: Any, summary: str) -> Route:
    return Route(method="DELETE", path=path, handler=handler, scope="cancel", summary=summary, answers={202: None})


def _read(path: str, handler: Any, summary: str, *parameters: str, answers: Any = None) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        scope="read",
        summary=summary,
        parameters=parameters,
        answers={200: answers},
    )


def _open(path: str, handler: Any, summary: str, answers: Any = None) -> Route:
    return Route(method="GET", path=path, handler=handler, scope=None, summary=summary, answers={200: answers})


_SUBMISSION = (schemas.TaskBody, schemas.ArrayBody, list[schemas.TaskBody])

ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/v1/schedule",
        handler=submit.schedule,
        scope="submit",
        summary="Submit a task, a list, or an array job",
        reads=_SUBMISSION,
        media=(*submit.MEDIA, columns.MEDIA),
        answers={202: (schemas.Accepted, schemas.ManyAccepted)},
    ),
    Route(
        method="POST",
        path="/v1/plan",
        handler=submit.plan,
        scope="submit",
        summary="Dry run of the same bodies",
        reads=_SUBMISSION,
        media=submit.MEDIA,
        answers={200: schemas.Plan},
    ),
    _read("/v1/tasks", tasks.listing, "List tasks", "state", "queue", "label", "qos", "since", "limit", "cursor"),
    Route(
        method="POST",
        path="/v1/tasks/cancel",
        handler=tasks.cancel_many,
        scope="cancel",
        summary="Cancel all that match",
        reads=schemas.CancelBody,
        answers={202: None},
    ),
    _read(
        "/v1/tasks/{id:.+}/explain", tasks.explain, "Why it waits, or why it is where it is", answers=schemas.Explained
    ),
    _read(
        "/v1/tasks/{id:.+}/logs", watch.logs, "Its log", "stream", "follow", "offset", "attempt", answers="text/plain"
    ),
    _task("finish", tasks.finish, "End of a lease-only task", "submit", schemas.FinishBody),
    _task("hold", tasks.hold, "Keep it from starting", "cancel"),
    _task("release", tasks.release, "Let a held task go on", "cancel"),
    _task("requeue", tasks.requeue, "Stop the attempt and queue again", "cancel"),
    _task("priority", tasks.prioritise, "Another priority within its qos", "admin", schemas.PriorityBody),
    _read("/v1/tasks/{id:.+}", tasks.one, "One task"),
    _cancel("/v1/tasks/{id:.+}", tasks.cancel, "Cancel a task"),
    Route(
        method="POST",
        path="/v1/graphs",
        handler=graphs.submit,
        scope="submit",
        summary="Submit a graph of operators",
        reads=schemas.GraphBody,
        answers={202: schemas.GraphAccepted},
    ),
    _read("/v1/graphs", graphs.listing, "All graphs"),
    _read("/v1/graphs/{id:.+}", graphs.one, "One graph: progress, critical path, bound", "operators"),
    _cancel("/v1/graphs/{id:.+}", graphs.cancel, "Cancel a graph"),
    _read("/v1/nodes", cluster.nodes, "All nodes"),
    _node("drain", cluster.drain, "Nothing new; what runs finishes"),
    _node("cordon", cluster.cordon, "Nothing new"),
    _node("uncordon", cluster.uncordon, "Takes tasks again"),
    _read("/v1/nodes/{name}", cluster.node, "One node"),
    _read("/v1/devices", cluster.devices, "All devices"),
    _read("/v1/queues", cluster.queues, "All tenant queues"),
    _read("/v1/queues/{name:.+}", cluster.queue, "One queue"),
    Route(
        method="PUT",
        path="/v1/queues/{name:.+}",
        handler=cluster.set_queue,
        scope="admin",
        summary="Make or change a queue",
        reads=schemas.QueueBody,
    ),
    _read("/v1/profiles", profiles.listing, "Learned run times", "type", "times"),
    Route(
        method="POST",
        path="/v1/profiles",
        handler=profiles.importing,
        scope="admin",
        summary="Import learned run times",
        reads=schemas.ProfilesBody,
    ),
    _read("/v1/cluster", cluster.cluster, "Totals, use, fragmentation, lanes, leader, epoch"),
    _read("/v1/cells", cluster.cells, "Cells: leader, room, backlog, age of what is known"),
    Route(
        method="POST",
        path="/v1/cluster/handover",
        handler=cluster.hand_over,
        scope="admin",
        summary="Let a standby lead",
        reads=schemas.HandoverBody,
    ),
    _read("/v1/events", watch.events, "Events, as they come or in runs", "since", "follow", answers=watch.MEDIA),
    Route(
        method="GET",
        path="/v1/agents/connect",
        handler=agents.connect,
        scope="node",
        summary="WebSocket of node agents",
        answers={101: None},
    ),
    _read("/metrics", operations.metrics, "For Prometheus", answers="text/plain"),
    _open("/healthz", operations.healthz, "Whether the process lives"),
    _open("/readyz", operations.readyz, "Whether it serves"),
    _open("/version", operations.version, "What this is"),
    _open("/openapi.json", operations.openapi, "This description"),
    _open("/", operations.page, "A page for people", answers="text/html"),
)
