"""Graphs in the scheduler: what is told, what stands in the journal, what a restart knows."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from hetsched.errors import Conflict, NotFound, Problem, TooBusy
from hetsched.model import parse_submission
from hetsched.model.read_graph import parse_graph
from hetsched.scheduler import Scheduler, rehearse
from hetsched.scheduler import messages as m
from tests.scheduler.build import Story, node, task
from tests.scheduler.whatif import patient

SPEEDS = {"A100": 1, "T4": 0.5}


def story(**config: Any) -> Story:
    return Story([node("a", gpus=2), node("b", gpus=2, model="T4")], config={"batch": {"max_wait": 0}, **config})


def graph(*operators: dict[str, Any], ident: str | None = "g", **more: Any) -> m.SubmitGraph:
    template = {"resources": {"gpu": 1}, **more.pop("template", {})}
    body = {"template": template, "operators": [{"speeds": SPEEDS, **one} for one in operators], **more}
    return m.SubmitGraph(graph=parse_graph({**({"id": ident} if ident else {}), **body}))


def chain(*names: str) -> list[dict[str, Any]]:
    return [{"id": name, "cost": 10, **({"after": [names[at - 1]]} if at else {})} for at, name in enumerate(names)]


def live(one: Story, states: str = "placed,running") -> list[str]:
    return [t["id"] for t in one.scheduler.view.tasks(state=states)["tasks"]]


# ---------------------------------------------------------------------- told


def test_a_graph_goes_through_its_states() -> None:
    one = story()
    assert one.ask(graph(*chain("x", "y"))) == {"id": "g", "state": "queued", "operators": 2}
    shown = one.scheduler.view.graphs.one("g")
    assert (shown["state"], shown["progress"], shown["states"]) == ("running", 0.0, {"held": 1, "running": 1})
    assert shown["critical_path"] == {"seconds": 20.0, "operators": ["x", "y"]}
    assert shown["bound"] == {"seconds": 20.0, "critical_path": 20.0, "work": pytest.approx(20 / 3, abs=0.001)}
    one.wait(10)
    one.end("g/x")
    assert one.scheduler.view.graphs.one("g")["progress"] == 0.5
    one.end("g/y")
    shown = one.scheduler.view.graphs.one("g")
    assert (shown["state"], shown["progress"], shown["planned_seconds_left"]) == ("succeeded", 1.0, None)
    assert [event.data for event in one.events if event.event == "graph_ended"] == [
        {"graph": "g", "state": "succeeded"}
    ]


def test_the_same_graph_again_is_the_same_and_another_under_its_id_is_refused() -> None:
    one = story()
    one.ask(graph(*chain("x", "y")))
    assert one.ask(graph(*chain("x", "y")))["state"] == "running"
    assert len(live(one)) == 1
    refused = one.ask(graph(*chain("x", "z")))
    assert isinstance(refused, Problem) and (refused.code, refused.errors[0]["pointer"]) == ("conflict", "/id")


def test_without_an_id_it_gets_one() -> None:
    one = story()
    ids = {one.ask(graph(*chain("x"), ident=None))["id"] for _ in range(2)}
    assert len(ids) == 2 and all(one.scheduler.view.graphs.one(ident)["state"] == "running" for ident in ids)


def test_cancel_says_what_is_wrong() -> None:
    one = story()
    assert isinstance(one.ask(m.CancelGraph(graph="g")), NotFound)
    one.ask(graph(*chain("x", "y")))
    assert one.ask(m.CancelGraph(graph="g"))["id"] == "g"
    one.end("g/x", ok=False)
    assert one.scheduler.view.graphs.one("g")["state"] == "cancelled"
    assert one.state("g/x") == "cancelled"
    assert isinstance(one.ask(m.CancelGraph(graph="g")), Conflict)


def test_cancelling_one_task_cancels_its_operator_and_skips_what_needs_it() -> None:
    one = story()
    one.ask(graph(*chain("x", "y"), {"id": "z", "cost": 5}))
    one.ask(m.Cancel(ids=("g/x",)))
    one.end("g/x", ok=False)
    one.end("g/z")
    shown = one.scheduler.view.graphs.one("g")
    assert (shown["state"], shown["states"]) == ("cancelled", {"cancelled": 1, "skipped": 1, "succeeded": 1})


def test_a_name_that_somebody_has_taken_is_got_round() -> None:
    one = story()
    one.submit(task("g/x"))
    one.ask(graph(*chain("x")))
    assert "g/x:1000" in live(one)


def test_pieces_are_told_what_they_are() -> None:
    one = story()
    one.ask(graph({"id": "d", "cost_per_sample": 0.1, "command": ["work"]}, samples={"begin": 10, "end": 1010}))
    starts = [order.message for order in one.orders]
    spans = sorted((int(s.env["HETSCHED_SAMPLES_BEGIN"]), int(s.env["HETSCHED_SAMPLES_END"])) for s in starts)
    assert all(s.env["HETSCHED_GRAPH"] == "g" and s.env["HETSCHED_OPERATOR"] == "d" for s in starts)
    assert spans[0][0] == 10 and all(a[1] == b[0] for a, b in pairwise(spans))
    assert one.task("g/d:0")["labels"]["hetsched/graph"] == "g"


def test_what_nothing_can_run_is_named_and_begins_when_something_can() -> None:
    one = story()
    one.ask(graph({"id": "x", "cost": 1, "resources": {"tpu": 1}}))
    assert one.scheduler.view.graphs.one("g")["unplaceable"] == ["x"]
    from hetsched.model import parse_node

    (spec,) = parse_node({"name": "t", "cpu": 4, "devices": [{"kind": "tpu", "count": 1}]})
    one.step(m.NodeJoined(node=spec, session=1))
    one.wait(0.1)
    assert live(one) == ["g/x"]


def test_as_many_graphs_as_may_be() -> None:
    one = story(limits={"graphs": 2})
    for name in ("g", "h"):
        one.ask(graph(*chain("x"), ident=name))
    assert isinstance(one.ask(graph(*chain("x"), ident="i")), TooBusy)
    one.end("g/x")
    assert one.ask(graph(*chain("x"), ident="i"))["id"] == "i"
    assert [line["id"] for line in one.scheduler.view.graphs.all()] == [
        "h",
        "i",
    ]  # the oldest that had ended is forgotten


def test_what_was_learned_serves_the_next_graph() -> None:
    """The T4 is believed to be half as fast, and shows that it is ten times as fast."""
    one = story()
    one.ask(graph({"id": "d", "cost": 100, "kind": "conv", "node_selector": {}, "models": ["T4"]}, ident="g"))
    for name in "hij":
        one.wait(10)
        one.end(f"{chr(ord(name) - 1)}/d")
        one.ask(graph({"id": "d", "cost": 100, "kind": "conv", "models": ["T4"]}, ident=name))
    one.ask(graph({"id": "d", "cost": 100, "kind": "conv", "models": ["A100", "T4"]}, ident="k"))
    assert one.node_of("k/d") == "b"


# ---------------------------------------------------------------------- kept


def eventful(seed: int) -> Story:
    """Graphs to which much happens."""
    rng = random.Random(seed)
    one = story()
    for turn in range(60):
        dice = rng.random()
        running = live(one)
        if dice < 0.2:
            one.ask(graph(*_random_operators(rng), ident=f"g{turn}", samples=1000))
        elif dice < 0.7 and running:
            one.end(rng.choice(running), ok=rng.random() < 0.85, reason="exit 1")
        elif dice < 0.75:
            one.step(m.NodeLost(node=rng.choice("ab")))
        elif dice < 0.85:
            _join_all(one)
        elif dice < 0.9:
            one.ask(m.CancelGraph(graph=f"g{rng.randrange(turn + 1)}"))
        one.wait(rng.choice([0, 1, 30]))
    _join_all(one)
    return one


def _join_all(one: Story) -> None:
    for name, held in list(one.scheduler.books.cluster.by_name.items()):
        if not held.up:
            one.step(m.NodeJoined(node=held.spec, session=one.session))
            assert one.scheduler.books.cluster.by_name[name].up


def _random_operators(rng: random.Random) -> list[dict[str, Any]]:
    operators: list[dict[str, Any]] = []
    for at in range(rng.randint(1, 6)):
        after = rng.sample([one["id"] for one in operators], min(at, rng.randint(0, 2)))
        links = [{"id": parent, "data": rng.choice([0, 10**9])} for parent in after]
        cost = {"cost": rng.choice([0, 5, 50])} if rng.random() < 0.6 else {"cost_per_sample": 0.05, "chunk": 100}
        operators.append({"id": f"o{at}", "after": links, "retries": rng.choice([0, 1]), **cost})
    return operators


@pytest.mark.parametrize("seed", range(4))
def test_replay_equals_live(seed: int) -> None:
    one = eventful(seed)
    again = one.replayed()
    again.core.check()
    assert again.digest() == one.scheduler.digest()
    assert again.view.graphs.all() == one.scheduler.view.graphs.all()


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_is_the_state(seed: int) -> None:
    one = eventful(seed)
    again = Scheduler.restore(one.config, one.scheduler.snapshot(), seed=1)
    again.resume()
    assert again.digest() == one.scheduler.digest()
    assert again.view.graphs.all() == one.scheduler.view.graphs.all()


@pytest.mark.parametrize("seed", range(4))
def test_a_restarted_scheduler_brings_every_graph_to_its_one_end(seed: int) -> None:
    one = eventful(seed)
    one.scheduler = one.replayed()
    one.scheduler.world.sessions.update({"a": 1, "b": 1})
    for _ in range(1_000):
        one.wait(20)
        if not one.scheduler.books.graphs.open():
            break
        for ident in live(one, "placed,running,stopping"):
            if one.task(ident)["placement"]:
                one.end(ident, ok=one.state(ident) != "stopping")
    graphs = one.scheduler.view.graphs.all()
    assert {line["state"] for line in graphs} <= {"succeeded", "failed", "cancelled"}
    ends = [event.data["graph"] for event in one.events if event.event == "graph_ended"]
    assert len(ends) == len(set(ends)) == len(graphs)
    for course in one.scheduler.books.graphs.by_id.values():
        if course.state == "succeeded":
            assert [part.done for part in course.parts] == [operator.samples for operator in course.graph.operators]


# ---------------------------------------------------------------------- large ones


def wide(count: int) -> m.SubmitGraph:
    """Pairs, the second after the first."""
    operators = [
        {"id": f"{part}{at}", "cost": 1 + at % 7, **({"after": [f"a{at}"]} if part == "b" else {})}
        for at in range(count)
        for part in "ab"
    ]
    return graph(*operators)


def turns_until_something_runs(one: Story) -> int:
    for turn in range(100):
        if live(one):
            return turn
        assert one.scheduler.wake_ns() == one.now_ns, "it wants to go on at once"
        one.step()
    raise AssertionError("nothing of it is ever cut")


def test_a_large_graph_is_planned_over_several_turns_of_one_instant_as_it_would_be_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = story()
    one.step(wide(1500))
    assert turns_until_something_runs(one) >= 5
    monkeypatch.setattr("hetsched.scheduler.graphs.conductor.A_TURN", float("inf"))
    other = story()
    other.step(wide(1500))
    assert turns_until_something_runs(other) == 0
    assert live(one) == live(other) and len(live(one)) == 4


def test_a_small_graph_is_planned_in_the_turn_in_which_it_comes() -> None:
    one = story()
    one.step(wide(15))
    assert len(live(one)) == 4


def test_plans_and_advice_say_which_operators_they_do_not_count() -> None:
    one = story()
    one.step(wide(5))
    one.submit(task("w", resources={"gpu": 2}))
    one.wait(0.1)
    image = rehearse.take(one.scheduler)
    (told,) = image.left_out()
    assert (told["graph"], told["operators"]) == ("g", 6)
    advice = rehearse.advise(image, "w", one.now_ns, patient)
    assert advice is not None and advice.left_out == [told]
    answer = rehearse.plan(image, parse_submission(task("p")), one.now_ns, patient)
    assert isinstance(answer, dict) and answer["left_out"] == [told]
