"""A small client of the HTTP interface (docs/http.md): what the CLI and the demo use, and programs may.

    from hetsched.client import Client
    task = Client.local().submit({"command": ["true"]})
    Client.local().wait([task["id"]])

Every refusal is an exception of `hetsched.errors`; nobody answering is `Unreachable`. Submissions carry an
Idempotency-Key and are sent again after a dropped connection, so one call makes its tasks once.
`hetsched.client.aio` is the same for asyncio.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from hetsched.client import address, streams
from hetsched.client.problems import Unreachable
from hetsched.client.transport import Transport, sendable
from hetsched.errors import Problem

__all__ = ["ENDED", "Client", "Unreachable"]

ENDED = frozenset({"succeeded", "failed", "cancelled", "expired", "skipped"})
_PAGE = 1000


class Client:
    """Calls of CONTRACT, section 3, by name. Values are the JSON of the answers. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience_s: float = 10.0,
        reach_s: float = 1.0,
        timeout_s: float = 30.0,
    ) -> None:
        """`url`: of the daemon; of several that share a store, separated by commas."""
        self._http = Transport(url, token, patience_s=patience_s, reach_s=reach_s, timeout_s=timeout_s)
        self._patience_s = patience_s

    @classmethod
    def local(
        cls, url: str | None = None, token: str | None = None, data: str | None = None, **limits: float
    ) -> Client:
        """The daemon named by the arguments, by HETSCHED_URL and HETSCHED_TOKEN, or by the data directory."""
        found = address.find_soon(url, token, data)
        return cls(found.url, found.token, **limits)

    @property
    def url(self) -> str:
        """The daemon that is asked now."""
        return self._http.url

    # ------------------------------------------------------------------ tasks

    def submit(self, body: Any, *, key: str | None = None, wait_s: float | None = None) -> dict[str, Any]:
        """`body`: a task, a list of them, or an array form. `wait_s`: hold the answer until placed, at most so long."""
        return self.submit_bytes(_encode(body), "application/json", key=key, wait_s=wait_s)

    def submit_bytes(
        self, body: bytes, content_type: str, *, key: str | None = None, wait_s: float | None = None
    ) -> dict[str, Any]:
        """As `submit`, with a body encoded by the caller (JSON, NDJSON or msgpack)."""
        key = sendable("the idempotency key", key) if key else secrets.token_hex(16)
        headers = {"Content-Type": content_type, "Idempotency-Key": key}
        if wait_s is not None:
            headers["Prefer"] = f"wait={wait_s:g}"
        answer: dict[str, Any] = self._http.call("POST", "/v1/schedule", body, headers=headers, repeatable=True)
        return answer

    def submit_many(
        self,
        templates: Sequence[Mapping[str, Any]],
        ids: Sequence[str] | int,
        which: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Very many tasks at a few bytes each: `ids` (or how many: names are made here, so that sending again makes none twice), and `which` of
        the templates each is. Tasks of a gang, after others or with a deadline that ends them go by `submit`."""
        if isinstance(ids, int):
            prefix = secrets.token_hex(6)
            ids = [f"{prefix}-{number}" for number in range(ids)]
        from hetsched.model import columns  # a tenth of a second of small commands' start, for those who send very many

        headers = {"Content-Type": columns.MEDIA}
        body = columns.packed(templates, ids, which)
        answer: dict[str, Any] = self._http.call("POST", "/v1/schedule", body, headers=headers, repeatable=True)
        return answer

    def plan(self, body: Any) -> Any:
        """What would be placed where; changes nothing."""
        return self._post("/v1/plan", body, repeatable=True)

    def task(self, task_id: str) -> dict[str, Any]:
        """One task: spec, state, attempts, placement, times."""
        answer: dict[str, Any] = self._get(f"/v1/tasks/{_name(task_id)}")
        return answer

    def tasks(self, *, limit: int | None = None, **filters: str | None) -> Iterator[dict[str, Any]]:
        """All that match `state`, `queue`, `label`, `qos`, `since`, page by page; at most `limit`."""
        left = limit
        cursor: str | None = None
        while left is None or left > 0:
            query = {k: v for k, v in filters.items() if v is not None}
            query["limit"] = str(_PAGE if left is None else min(left, _PAGE))
            if cursor:
                query["cursor"] = cursor
            page = self._get("/v1/tasks?" + urlencode(query))
            yield from page["tasks"]
            left = None if left is None else left - len(page["tasks"])
            cursor = page["next"]
            if not cursor:
                return

    def explain(self, task_id: str) -> dict[str, Any]:
        """Why it waits, or why it is where it is."""
        answer: dict[str, Any] = self._get(f"/v1/tasks/{_name(task_id)}/explain")
        return answer

    def logs(
        self, task_id: str, *, stream: str = "stdout", follow: bool = False, offset: int = 0, attempt: int | None = None
    ) -> Iterator[bytes]:
        """The log as it comes, from byte `offset`. A follower that loses the connection goes on where it was."""
        return streams.read_log(
            self._http, f"/v1/tasks/{_name(task_id)}/logs", stream, attempt, offset, follow, self._patience_s
        )

    def cancel(self, task_id: str) -> Any:
        """Raises Conflict if it has already ended."""
        return self._http.call("DELETE", f"/v1/tasks/{_name(task_id)}")

    def cancel_where(self, selector: Mapping[str, Any]) -> dict[str, Any]:
        """Every task that matches: `ids`, `queue`, `label`, `qos`, `state`."""
        answer: dict[str, Any] = self._post("/v1/tasks/cancel", selector)
        return answer

    def finish(self, task_id: str, attempt: int, *, succeeded: bool = True, reason: str = "") -> Any:
        """The end of a lease-only task."""
        body = {"attempt": attempt, "status": "succeeded" if succeeded else "failed"}
        return self._post(f"/v1/tasks/{_name(task_id)}/finish", {**body, **({"reason": reason} if reason else {})})

    def operate(self, verb: str, task_id: str, *, priority: int | None = None) -> Any:
        """hold | release | requeue | priority."""
        return self._post(f"/v1/tasks/{_name(task_id)}/{verb}", None if priority is None else {"priority": priority})

    def wait(
        self,
        task_ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        ended: Callable[[dict[str, Any]], None] = lambda task: None,
        waiting: Callable[[dict[str, Any]], None] = lambda task: None,
    ) -> list[dict[str, Any]]:
        """Until all have ended; their last state, in order. Raises TimeoutError. `waiting` is told about every look."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        done = []
        for task_id in task_ids:
            task = self._wait_one(task_id, deadline, waiting)
            ended(task)
            done.append(task)
        return done

    def _wait_one(
        self, task_id: str, deadline: float | None, waiting: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        pause_s = 0.05
        while (task := self.task(task_id))["state"] not in ENDED:
            waiting(task)
            left_s = pause_s if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"{task_id} is still {task['state']}")
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, 1.0)
        return task

    # ------------------------------------------------------------------ graphs

    def submit_graph(self, graph: Mapping[str, Any]) -> dict[str, Any]:
        """A graph of operators (docs/graphs.md); one without id gets it here, so that sending it again makes no second one."""
        body = {"id": f"graph-{secrets.token_hex(6)}", **graph}
        answer: dict[str, Any] = self._post("/v1/graphs", body, repeatable=True)
        return answer

    def graphs(self) -> Any:
        """A line a graph."""
        return self._get("/v1/graphs")

    def graph(self, graph_id: str, *, operators: bool = True) -> dict[str, Any]:
        """Progress, critical path and bound; with a line an operator if `operators`."""
        answer: dict[str, Any] = self._get(f"/v1/graphs/{_name(graph_id)}" + ("" if operators else "?operators=false"))
        return answer

    def cancel_graph(self, graph_id: str) -> Any:
        """All that has not ended of it."""
        return self._http.call("DELETE", f"/v1/graphs/{_name(graph_id)}")

    # ------------------------------------------------------------------ cluster

    def nodes(self) -> Any:
        """Every node with capacity, use and health."""
        return self._get("/v1/nodes")

    def node(self, name: str) -> Any:
        """One node."""
        return self._get(f"/v1/nodes/{_name(name)}")

    def operate_node(self, verb: str, name: str) -> Any:
        """drain | cordon | uncordon."""
        return self._post(f"/v1/nodes/{_name(name)}/{verb}", None)

    def devices(self) -> Any:
        """Every device with shares and health."""
        return self._get("/v1/devices")

    def queues(self) -> Any:
        """Every tenant queue."""
        return self._get("/v1/queues")

    def queue(self, name: str) -> dict[str, Any]:
        """One queue."""
        answer: dict[str, Any] = self._get(f"/v1/queues/{_name(name)}")
        return answer

    def set_queue(self, name: str, body: Mapping[str, Any]) -> Any:
        """weight, guaranteed, limit."""
        return self._http.call("PUT", f"/v1/queues/{_name(name)}", _encode(body), headers=_JSON, repeatable=True)

    def profiles(self, task_type: str | None = None, *, times: bool = False) -> Any:
        """Learned run times, of one type of task or of all; with the run times themselves if `times`."""
        query = {**({"type": task_type} if task_type else {}), **({"times": "true"} if times else {})}
        return self._get("/v1/profiles" + ("?" + urlencode(query) if query else ""))

    def import_profiles(self, profiles: Iterable[Mapping[str, Any]]) -> Any:
        """Rows as `profiles(times=True)` gives them; each replaces the one of its type, model and size."""
        return self._post("/v1/profiles", {"profiles": list(profiles)})

    def cells(self) -> Any:
        """Every cell with its leader, room and backlog; none where the cluster is not parted."""
        return self._get("/v1/cells")

    def cluster(self) -> dict[str, Any]:
        """Totals, use, fragmentation, lanes, leader, epoch."""
        answer: dict[str, Any] = self._get("/v1/cluster")
        return answer

    def health(self) -> dict[str, Any]:
        """Whether it lives, and in which state: recovering, ready, safe or stopping."""
        answer: dict[str, Any] = self._get("/healthz")
        return answer

    def hand_over(self, to: str | None = None) -> dict[str, Any]:
        """Let a standby lead: named by its name or URL, or the one that is furthest."""
        answer: dict[str, Any] = self._post("/v1/cluster/handover", {} if to is None else {"to": to})
        return answer

    def version(self) -> Any:
        """What the daemon says it is."""
        return self._get("/version")

    def events(self, since: int | None = None, *, follow: bool = True) -> Iterator[dict[str, Any]]:
        """The event log from after `since` (None: from now), for ever or to what is there. Joins again by itself after
        a cut, at the event it had last; raises Gone when what follows is no longer kept."""
        return streams.read_events(self._http, since, follow, self._patience_s)

    # ------------------------------------------------------------------

    def close(self) -> None:
        """Closes this thread's connection."""
        self._http.close()

    def _get(self, path: str) -> Any:
        return self._http.call("GET", path, repeatable=True)

    def _post(self, path: str, body: Any, *, repeatable: bool = False) -> Any:
        if body is None:
            return self._http.call("POST", path, repeatable=repeatable)
        return self._http.call("POST", path, _encode(body), headers=_JSON, repeatable=repeatable)


_JSON = {"Content-Type": "application/json"}


def _name(text: str) -> str:
    """As one segment of a path: ids may hold slashes."""
    return quote(text, safe="")


def _encode(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Problem(f"this cannot be written as JSON: {error}", code="malformed") from None
