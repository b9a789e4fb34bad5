"""Plain tasks go through by the run; what is told of them is what would have been told one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hetsched import wire
from hetsched.model import parse_node
from hetsched.scheduler import messages as m
from hetsched.scheduler.books import Books
from tests.scheduler.build import Story, node, task


def busy(seed: int) -> Story:
    """Tasks of all sorts come, are placed on two nodes and end, many at once; the oldest are forgotten."""
    rng = random.Random(seed)
    story = Story([node("n1", gpus=4), node("n2", gpus=4)], config={"limits": {"retention_tasks": 20}}, start=False)
    sorts: list[dict[str, Any]] = [
        {},
        {"resources": {"gpu": 0.5}},
        {"time_limit": 100},
        {"checkpoint": 10},
        {"retries": 1},
    ]
    for number in range(12):
        bodies = [task(f"t{number}-{at}", cpu=0.5, **rng.choice(sorts)) for at in range(rng.randrange(1, 8))]
        if number:
            bodies[0]["after"] = [bodies[-1]["id"]] if len(bodies) > 1 else []
        story.submit(bodies)
        story.wait(1)
        running = [
            (slot, story.scheduler.core.task(slot).key.decode(), attempt)
            for slot, attempt in story.scheduler.books.attempts.live.items()
        ]
        for name in ("n1", "n2"):
            here = [
                (ident, attempt.number) for _, ident, attempt in running if attempt.node == name and rng.random() < 0.7
            ]
            if here:
                tasks, attempts = wire.columns(here)
                said = [m.AttemptsStarted, m.AttemptsSucceeded] if rng.random() < 0.5 else [m.AttemptsSucceeded]
                story.step(*(one(node=name, tasks=tasks, attempts=attempts) for one in said))
        story.wait(2)
    return story


@pytest.mark.parametrize("seed", range(4))
def test_by_the_run_and_one_by_one_is_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_run = busy(seed)
    assert by_run.replayed().digest() == by_run.scheduler.digest()
    with monkeypatch.context() as patched:
        patched.setattr(Books, "takes_runs", property(lambda books: False))
        one_by_one = busy(seed)
        assert by_run.replayed().digest() == by_run.scheduler.digest()
    assert by_run.frames == one_by_one.frames
    assert by_run.events == one_by_one.events
    assert [(order.node, order.message) for order in by_run.orders] == [
        (order.node, order.message) for order in one_by_one.orders
    ]
    assert by_run.scheduler.digest() == one_by_one.scheduler.digest()


def test_where_a_task_succeeded_is_told_after_the_node_came_back_with_other_hardware() -> None:
    story = Story([node("n1", gpus=2)])
    story.submit(task("t", resources={"gpu": 1}))
    story.wait(1)
    story.end("t")
    before = story.task("t")["attempts"]
    (spec,) = parse_node(node("n1", gpus=1, model="H100"))
    story.step(m.NodeJoined(node=spec, session=2))
    assert story.task("t")["attempts"] == before and before[0]["outcome"] == "succeeded"
    assert story.replayed().digest() == story.scheduler.digest()


def test_a_snapshot_keeps_where_tasks_run_and_succeeded() -> None:
    story = Story([node("n1", gpus=2)])
    story.submit([task("done"), task("runs", resources={"gpu": 0.5})])
    story.wait(1)
    story.end("done")
    again = type(story.scheduler).restore(story.config, story.scheduler.snapshot())
    assert [again.view.task(ident) for ident in ("done", "runs")] == [story.task(ident) for ident in ("done", "runs")]
    assert again.digest() == story.scheduler.digest()


def test_what_several_nodes_say_in_one_turn_is_one_run_and_in_their_order() -> None:
    story = Story([node("n1", cpu=2), node("n2", cpu=2)], start=False)
    story.submit([task(f"t-{at}") for at in range(4)])
    story.wait(1)
    on: dict[str, list[tuple[str, int]]] = {"n1": [], "n2": []}
    for at in range(4):
        on[str(story.task(f"t-{at}")["placement"]["node"])].append((f"t-{at}", 1))
    columns = {name: wire.columns(attempts) for name, attempts in on.items()}
    began = [m.AttemptsStarted(node=name, tasks=ids, attempts=numbers) for name, (ids, numbers) in columns.items()]
    over = [m.AttemptsSucceeded(node=name, tasks=ids, attempts=numbers) for name, (ids, numbers) in columns.items()]
    turn = story.step(*began, *over)
    assert [len(part) for part in turn.events.parts if isinstance(part, m.FactRun)] == [8]
    assert [(event.event, event.task) for event in turn.events] == [
        (what, ident) for what in ("running", "succeeded") for name in on for ident, _ in on[name]
    ]
    assert story.replayed().digest() == story.scheduler.digest()
