"""Graphs in the simulator: near to HEFT, adapting to what happens, the same bytes, each ending once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadtest.bench_graphs import measure
from loadtest.workflows import SHAPES
from tests.sim.worlds import Run

SPEEDS = {"A100": 1.0, "T4": 0.25}
NODES = [
    {"name": "fast", "cpu": 8, "devices": [{"kind": "gpu", "model": "A100", "count": 1}]},
    {"name": "slow", "cpu": 8, "devices": [{"kind": "gpu", "model": "T4", "count": 2}]},
]
EVEN: dict[str, Any] = {"speeds": {"A100": 1, "T4": 1}}
ENDS = {"succeeded", "failed", "cancelled", "expired", "skipped"}


def operator(ident: str, cost: float = 10, **more: Any) -> dict[str, Any]:
    return {"speeds": SPEEDS, **more, "id": ident, "cost": cost}


def scenario(
    operators: list[dict[str, Any]], *events: dict[str, Any], truth: Any = None, **more: Any
) -> dict[str, Any]:
    graph = {"id": "g", "template": {"qos": "critical", "resources": {"gpu": 1}}, "operators": operators, **more}
    return {
        "nodes": NODES,
        "speeds": {"*": truth or SPEEDS},
        "events": [{"at": 0, "graph": graph}, *events],
        "until": 10_000,
    }


def end_of(run: Run, graph: str = "g") -> tuple[float, str]:
    """When and how, once."""
    (event,) = [event for event in run.of("graph_ended") if event["graph"] == graph]
    return event["t"], event["state"]


def samples_of(run: Run, operator: str) -> int:
    """Pieces of it that succeeded."""
    return sum(e["task"].startswith(f"g/{operator}") for e in run.of("succeeded"))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_makespan_is_within_a_twentieth_of_hefts(shape: str) -> None:
    row = measure(shape, 1)
    assert row.bound <= row.ours <= 1.05 * row.heft


def test_the_highest_rank_goes_first_whatever_the_order_in_the_file(tmp_path: Path) -> None:
    ops = [operator("short"), operator("long"), operator("after", 50, after=["long"])]
    run = Run(tmp_path, scenario(ops))
    assert [e["task"] for e in run.of("placed") if e["node"] == "fast"] == ["g/long", "g/after"]
    assert end_of(run) == (60.0, "succeeded")


def test_pieces_are_in_proportion_to_speed_and_all_devices_end_together(tmp_path: Path) -> None:
    run = Run(tmp_path, scenario([{"id": "d", "cost_per_sample": 0.1, "speeds": SPEEDS}], samples=3000))
    last = {e["node"]: run.story(e["task"])[-1][0] for e in run.of("placed")}
    assert end_of(run)[1] == "succeeded" and end_of(run)[0] == pytest.approx(200, abs=3)  # 300 s of work at speed 1.5
    assert last["fast"] == pytest.approx(last["slow"], abs=3)


def test_a_device_that_is_faster_than_believed_gets_more_of_the_rest(tmp_path: Path) -> None:
    """It is said that a T4 does a quarter; in truth it does twice as much as an A100."""
    ops = [{"id": "d", "cost_per_sample": 0.1, "speeds": SPEEDS}]
    run = Run(tmp_path, scenario(ops, samples=6000, truth={"A100": 1.0, "T4": 2.0}))
    ended, state = end_of(run)
    assert state == "succeeded"
    assert ended < 1.6 * 600 / 5  # without balancing anew the A100 alone would work for 400 s


def test_a_straggler_is_taken_off_its_work_and_others_do_it(tmp_path: Path) -> None:
    """The A100 turns out to be four hundred times slower than said."""
    ops = [{"id": "d", "cost_per_sample": 0.1, "speeds": SPEEDS}]
    run = Run(tmp_path, scenario(ops, samples=600, truth={"A100": 0.0025, "T4": 0.25}))
    assert [e["reason"] for e in run.of("cancelled")][:1] == ["replanned"]
    assert end_of(run)[1] == "succeeded" and end_of(run)[0] < 400


def test_a_lost_node_has_the_rest_planned_anew(tmp_path: Path) -> None:
    ops = [operator("a", 40), operator("b", 40, after=["a"]), operator("c", 40, after=["b"])]
    run = Run(tmp_path, scenario(ops, {"at": 60, "node_down": "fast"}))
    assert [e["task"] for e in run.of("placed") if e["node"] == "slow"] == ["g/b:1", "g/c"]
    assert run.story("g/b")[-2:] == [(60.0, "requeued"), (60.0, "cancelled")]  # its model is gone: cut anew
    assert end_of(run) == (380.0, "succeeded")


def test_a_node_that_comes_is_used(tmp_path: Path) -> None:
    ops = [operator(f"o{i}", 100) for i in range(4)]
    world = scenario(ops, {"at": 0, "node_down": "slow"}, {"at": 10, "node_up": "slow"})
    run = Run(tmp_path, world)
    assert {e["node"] for e in run.of("placed")} == {"fast", "slow"} or end_of(run)[0] <= 400


def test_alternatives_are_chosen_by_what_ends_first(tmp_path: Path) -> None:
    either = {"alternatives": [{"resources": {"gpu": 1}}, {"resources": {"cpu": 8}}], "speeds": {**SPEEDS, "cpu": 0.2}}
    ops = [{"id": f"o{i}", "cost": 100, **either} for i in range(3)]
    world = scenario(ops, template={"qos": "critical"})
    run = Run(tmp_path, world)
    assert end_of(run)[1] == "succeeded" and end_of(run)[0] <= 300


def test_the_pattern_picks_the_kind_of_device(tmp_path: Path) -> None:
    ops = [{"id": "m", "cost": 5, "pattern": "matrix-heavy"}, {"id": "c", "cost": 5, "pattern": "control-heavy"}]
    run = Run(tmp_path, scenario(ops, template={"qos": "critical"}))
    devices = {e["task"]: [d["id"] for d in e["devices"]] for e in run.of("placed")}
    assert devices == {"g/m": ["gpu-0"], "g/c": []}


def test_data_is_fetched_where_it_is_not(tmp_path: Path) -> None:
    ops = [operator("a"), operator("b", after=[{"id": "a", "data": 125_000_000_000}], node_selector={"here": "yes"})]
    world = scenario(ops)
    world["nodes"] = [NODES[0], {**NODES[1], "labels": {"here": "yes"}}]
    assert end_of(Run(tmp_path, world))[0] == 10 + 100 + 40  # then 125 GB over 1.25 GB/s, then a T4


def test_an_operator_that_fails_skips_what_needs_it_and_the_rest_goes_on(tmp_path: Path) -> None:
    ops = [operator("bad", retries=0, **EVEN), operator("child", after=["bad"]), operator("other", 30, **EVEN)]
    run = Run(tmp_path, scenario(ops, {"at": 5, "fail": "g/bad"}))
    assert run.story("g/child") == []
    assert run.story("g/other")[-1][1] == "succeeded"
    assert end_of(run)[1] == "failed"


def test_a_failure_is_retried_like_any_tasks(tmp_path: Path) -> None:
    run = Run(tmp_path, scenario([operator("a"), operator("b", after=["a"])], {"at": 5, "fail": "g/a"}))
    assert end_of(run)[1] == "succeeded"


def test_cancelling_the_graph_cancels_all_of_it(tmp_path: Path) -> None:
    ops = [operator("a", 50, **EVEN), operator("b", after=["a"]), operator("c", 50, **EVEN)]
    run = Run(tmp_path, scenario(ops, {"at": 5, "cancel_graph": "g"}))
    assert end_of(run) == (5.0, "cancelled")
    assert {run.story(task)[-1][1] for task in ("g/a", "g/c")} == {"cancelled"}
    assert run.story("g/b") == []


def test_others_work_is_waited_for_in_the_queue_and_urgent_graphs_evict(tmp_path: Path) -> None:
    world = scenario([operator("a")])
    hog = {"template": {"id": "hog", "qos": "background", "resources": {"gpu": 1}, "duration": 5000}, "count": 3}
    world["events"] = [{"at": 0, "submit": hog}, {**world["events"][0], "at": 100}]
    run = Run(tmp_path, world)
    assert len(run.of("preempted")) == 1
    assert end_of(run)[1] == "succeeded" and end_of(run)[0] < 150


def test_two_graphs_share(tmp_path: Path) -> None:
    many = [{"id": f"o{i}", "cost": 10, "speeds": SPEEDS} for i in range(12)]
    world = scenario(many)
    world["events"].append({"at": 0, "graph": {**world["events"][0]["graph"], "id": "h"}})
    run = Run(tmp_path, world)
    assert end_of(run, "g")[0] == pytest.approx(end_of(run, "h")[0], rel=0.25)


def test_the_same_file_gives_the_same_bytes(tmp_path: Path) -> None:
    ops = [operator("a"), {"id": "d", "cost_per_sample": 0.1, "after": ["a"]}, operator("z", after=["d"])]
    world = scenario(ops, {"at": 20, "node_down": "fast"}, {"at": 60, "node_up": "fast"}, samples=1000)
    one, two = Run(tmp_path, world), Run(tmp_path, world)
    assert one.bytes == two.bytes and end_of(one)[1] == "succeeded"


def test_every_sample_is_done_once(tmp_path: Path) -> None:
    ops = [{"id": "d", "cost_per_sample": 0.1, "speeds": SPEEDS}]
    events = [{"at": 40, "node_down": "slow"}, {"at": 50, "node_up": "slow"}, {"at": 70, "fail": "g/d:0"}]
    run = Run(tmp_path, scenario(ops, *events, samples={"begin": 100, "end": 2100}))
    assert end_of(run)[1] == "succeeded"
    for task in {e["task"] for e in run.events if "task" in e}:
        assert sum(name in ENDS for _, name in run.story(task)) == 1
