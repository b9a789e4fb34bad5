"""Small random worlds for questions about the future, and a person's hand: calls over HTTP as the inputs that the API makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from hetsched import wire
from hetsched.model import parse_queue, parse_submission
from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from tests.scheduler.build import SECOND, Story, node, task


def patient(part: float) -> Callable[[], bool]:
    """All the time in the world."""
    return lambda: False


def small_world(seed: int, *, hurried: bool = False) -> Story:
    """Two to five unlike nodes, some closed, a queue with a limit, tasks that run and tasks that wait. `hurried`: most of them expire."""
    dice, hurry = random.Random(seed), random.Random(seed)
    nodes = [_node(dice, at) for at in range(dice.randint(2, 5))]
    story = Story(nodes, config={"reject_unsatisfiable": False})
    story.queue(name="small", limit={"gpu": dice.randint(1, 4)})
    for at in range(dice.randint(3, 14)):
        story.submit({**_task(dice, f"t{at}"), **(_deadline(hurry) if hurried else {})})
        story.wait(dice.choice((0.2, 1, 30)))
    if dice.random() < 0.4:
        story.ask(m.OperateNode(verb="cordon", node=dice.choice(nodes)["name"]))
    for at in range(dice.randint(1, 6)):
        story.submit({**_task(dice, f"w{at}", big=True), **(_deadline(hurry) if hurried else {})})
    if dice.random() < 0.3:
        _gang(dice, story)
    story.wait(1)
    return story


def _node(dice: random.Random, at: int) -> dict[str, Any]:
    taints = [{"key": "only", "value": "us", "effect": "NoSchedule"}] if dice.random() < 0.2 else []
    return node(
        f"n{at}",
        cpu=dice.choice((4, 8, 16)),
        memory=dice.choice(("16Gi", "64Gi")),
        gpus=dice.choice((0, 1, 2, 4)),
        model=dice.choice(("A100", "H100")),
        labels={"zone": dice.choice(("z1", "z2"))},
        taints=taints,
    )


def _task(dice: random.Random, ident: str, *, big: bool = False) -> dict[str, Any]:
    body: dict[str, Any] = task(ident, cpu=dice.choice((1, 2, 4, 8, 16) if big else (1, 2, 4)))
    gpus = dice.choice((0, 0.5, 1, 2, 4, 6) if big else (0, 0.5, 1, 2))
    if gpus:
        body["resources"]["gpu"] = gpus
    if gpus and dice.random() < 0.3:
        body["models"] = [dice.choice(("A100", "H100", "B200"))]
    if dice.random() < 0.25:
        body["node_selector"] = {"zone": dice.choice(("z1", "z2", "z3"))}
    if dice.random() < 0.2:
        body["queue"] = "small"
    body["qos"] = dice.choice(("production", "production", "best_effort", "background", "critical"))
    body["grace"] = dice.choice((5, 30))
    known = dice.choice(("duration", "duration", "estimate", "time_limit", None))
    if known is not None:
        body[known] = dice.choice((60, 300, 1000))
    return body


def _deadline(dice: random.Random) -> dict[str, Any]:
    return {"deadline": dice.choice((40, 200, 700)), "on_deadline": "expire"} if dice.random() < 0.7 else {}


def _gang(dice: random.Random, story: Story) -> None:
    size = dice.choice((2, 3))
    body = _task(dice, "g", big=True)
    body["gang"] = {"id": "g", "size": size}
    story.submit({"template": body, "count": size})


# ---------------------------------------------------------------------- going on from here


class Real(Story):
    """The same scheduler again, from its own snapshot, going on by itself: attempts end when they are known to end."""

    def __init__(self, story: Story) -> None:
        self.config = story.config
        self.scheduler = Scheduler.restore(self.config, story.scheduler.snapshot(), seed=1)
        self.now_ns = story.now_ns
        self.start = True
        self.events, self.orders, self.frames = [], [], []
        self.session, self.ticket = 1, 0
        self.scheduler.resume()
        self.scheduler.adopt(story.scheduler.derived())  # a restart would price anew; here nothing else is to differ
        self.from_ns = story.now_ns
        self.stops: dict[tuple[str, int], int] = {}
        for slot in list(self.scheduler.books.attempts.live):
            row = self.scheduler.core.task(slot)
            if self.scheduler.books.attempts.stopping.get(slot) is not None:
                self.stops[row.key.decode(), row.attempt] = row.changed_ns
        self.step()
        assert self.events == [], "a scheduler at rest has nothing to decide after a restart either"

    def step(self, *inputs: m.Input) -> Any:
        turn = super().step(*inputs)
        for order in turn.orders:
            if isinstance(order.message, wire.Stop):
                self.stops.setdefault((order.message.task, order.message.attempt), self.now_ns)
        return turn

    def do(self, calls: list[dict[str, Any]]) -> list[str]:
        """Do what a remedy says; ids of what was submitted."""
        ids: list[str] = []
        for call in calls:
            answer = self.ask(input_of(call))
            assert not isinstance(answer, Exception), (call, answer)
            if isinstance(answer, m.SubmitReply):
                assert not answer.rejected, answer.rejected
                ids += [ident for ident in answer.ids if ident is not None]
        return ids

    def go_on_until_placed(self, ident: str, most: int = 400) -> float | None:
        """Seconds from now until it is placed; None: it never is."""
        began_ns = self.now_ns
        for _ in range(most):
            if self.node_of(ident) is not None:
                return (self.now_ns - began_ns) / SECOND
            ends = [end for end in (self._end_ns(slot) for slot in self.scheduler.books.attempts.live) if end]
            wake_ns = self.scheduler.wake_ns()
            soonest = min([*ends, *([] if wake_ns is None else [wake_ns])], default=None)
            if soonest is None:
                return None
            self.now_ns = max(self.now_ns, soonest)
            due = [s for s in list(self.scheduler.books.attempts.live) if (self._end_ns(s) or 1 << 62) <= self.now_ns]
            self.step(*(self._ended(slot) for slot in due))
        return None

    def _end_ns(self, slot: int) -> int | None:
        body = self.scheduler.world.body(slot)
        live = self.scheduler.books.attempts.live[slot]
        row = self.scheduler.core.task(slot)
        since = live.started_ns or live.placed_ns
        known = [since + round(s * SECOND) for s in (body.duration, body.estimate, body.time_limit) if s is not None]
        if body.estimate is not None and known[0] < self.from_ns:
            known = []  # the estimate was wrong, and nothing else is known
        ends = known[:1]
        stopped = self.stops.get((row.key.decode(), row.attempt))
        if stopped is not None:
            ends.append(stopped + round(body.grace * SECOND))
        return min(ends, default=None)

    def _ended(self, slot: int) -> m.AttemptEnded:
        row, live = self.scheduler.core.task(slot), self.scheduler.books.attempts.live[slot]
        stopping = slot in self.scheduler.books.attempts.stopping
        return m.AttemptEnded(node=live.node, task=row.key.decode(), attempt=live.number, succeeded=not stopping)


def input_of(call: dict[str, Any]) -> m.Input:
    """What the API makes of a call."""
    body = call["body"]
    match call["method"], [unquote(part) for part in call["path"].removeprefix("/v1/").split("/")]:
        case "POST", ["schedule"]:
            return m.Submit(submission=parse_submission(body))
        case "POST", ["tasks", "cancel"]:
            return m.Cancel(ids=tuple(body["ids"]))
        case "PUT", ["queues", *name]:
            return m.SetQueue(queue=parse_queue({"name": "/".join(name), **body}))
        case "POST", ["nodes", name, verb]:
            return m.OperateNode(verb=verb, node=name)
        case "POST", ["tasks", ident, verb]:
            return m.Operate(verb=verb, task=ident, priority=body.get("priority", 0))
    raise AssertionError(call)
