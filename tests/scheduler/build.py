"""A tiny world for stories: a scheduler, nodes that answer at once, a clock that is told."""

from __future__ import annotations

from typing import Any

from hetsched import wire
from hetsched.config import from_mapping
from hetsched.model import QueueSpec, parse_node, parse_queue, parse_submission
from hetsched.scheduler import Reply, Scheduler, Turn
from hetsched.scheduler import messages as m

SECOND = 1_000_000_000


class Story:
    """`start` = whether nodes report attempts as started as soon as they are ordered. Every turn's facts are kept for a replay."""

    def __init__(
        self, nodes: list[dict[str, Any]], *, config: dict[str, Any] | None = None, start: bool = True
    ) -> None:
        self.config = from_mapping(config or {})
        self.scheduler = Scheduler(self.config, seed=1)
        self.now_ns = 1_000 * SECOND
        self.start = start
        self.events: list[m.Event] = []
        self.orders: list[m.Order] = []
        self.frames: list[bytes] = []
        self.session = 1
        self.ticket = 0
        for raw in nodes:
            for spec in parse_node(raw):
                self.step(m.NodeJoined(node=spec, session=self.session))

    # -- acting

    def step(self, *inputs: m.Input) -> Turn:
        turn = self.scheduler.step(list(inputs), self.now_ns)
        self.events += turn.events
        self.orders += turn.orders
        if turn.facts:
            self.frames.append(turn.facts)
        self.scheduler.core.check()
        begun = [order for order in turn.orders if isinstance(order.message, wire.Start)]
        if self.start and begun:
            self.step(*(m.AttemptStarted(node=o.node, task=o.message.task, attempt=o.message.attempt) for o in begun))
        return turn

    def ask(self, message: m.Input) -> Any:
        """The reply to a client's input."""
        self.ticket += 1
        replies = self.step(_with_ticket(message, self.ticket)).replies
        return next(reply.value for reply in replies if reply.ticket == self.ticket)

    def submit(self, body: Any, **extra: Any) -> Any:
        return self.ask(m.Submit(submission=parse_submission(body), **extra))

    def queue(self, **raw: Any) -> QueueSpec:
        spec = parse_queue(raw)
        self.ask(m.SetQueue(queue=spec))
        return spec

    def wait(self, seconds: float) -> None:
        """Let time pass, waking the scheduler when it asks for it."""
        end_ns = self.now_ns + round(seconds * SECOND)
        while (wake_ns := self.scheduler.wake_ns()) is not None and wake_ns <= end_ns:
            self.now_ns = max(self.now_ns, wake_ns)
            self.step()
        self.now_ns = end_ns
        self.step()

    def end(self, task: str, *, ok: bool = True, reason: str = "") -> None:
        """The node says that the live attempt is over."""
        placement = self.task(task)["placement"]
        self.step(
            m.AttemptEnded(node=placement["node"], task=task, attempt=placement["attempt"], succeeded=ok, reason=reason)
        )

    # -- asking

    def task(self, ident: str) -> dict[str, Any]:
        return self.scheduler.view.task(ident)

    def state(self, ident: str) -> str:
        return str(self.task(ident)["state"])

    def node_of(self, ident: str) -> str | None:
        placement = self.task(ident)["placement"]
        return None if placement is None else str(placement["node"])

    def names(self, task: str | None = None) -> list[str]:
        """Event names, of one task or of all."""
        return [event.event for event in self.events if task is None or event.task == task]

    def replayed(self) -> Scheduler:
        """The same state, reached by nothing but the journal."""
        again = Scheduler.restore(self.config, None, seed=1)
        for frame in self.frames:
            again.apply(frame)
        again.resume()
        return again


def _with_ticket(message: m.Input, ticket: int) -> m.Input:
    import msgspec

    return msgspec.structs.replace(message, ticket=ticket)


def node(
    name: str, *, cpu: int = 8, memory: str = "32Gi", gpus: int = 0, model: str = "A100", **extra: Any
) -> dict[str, Any]:
    """A node as scenario files say it."""
    devices = [{"kind": "gpu", "model": model, "count": gpus, "memory": "40Gi"}] if gpus else []
    return {"name": name, "cpu": cpu, "memory": memory, "devices": devices, **extra}


def task(ident: str, *, cpu: float = 1, **extra: Any) -> dict[str, Any]:
    """A lease-only task of some cores."""
    resources = {"cpu": cpu, **extra.pop("resources", {})}
    return {"id": ident, "resources": resources, **extra}


def replies(turn: Turn) -> list[Reply]:
    return turn.replies
