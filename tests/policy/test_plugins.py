"""Plug-ins: found by entry point, asked for shapes and not for tasks, and dropped by name when they misbehave."""

from __future__ import annotations

import importlib
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from operator import setitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.config import from_mapping
from hetsched.daemon.scorers import ThreadedScorers
from hetsched.errors import ConfigError
from hetsched.model import parse_node
from hetsched.policy.fleet import Fleet
from hetsched.policy.scorers import Scorers, load_scorers
from hetsched.policy.shape import ShapeWords
from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from hetsched.scheduler.ranking import Ranking
from tests.scheduler.build import Story, node, task

from .worlds import fleet, shape


@pytest.fixture
def installed(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example package as an installer leaves it: its module and its entry points on the path."""
    source = root / "examples" / "scorer_plugin"
    said = tomllib.loads((source / "pyproject.toml").read_text())["project"]["entry-points"]
    info = tmp_path / "hetsched_cheapest-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hetsched-cheapest\nVersion: 0.1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in said.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "hetsched_cheapest.py").write_text((source / "hetsched_cheapest.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("hetsched_cheapest", None)


def story(runner: Scorers | None, **policy: Any) -> Story:
    nodes = [
        node(name, labels={"price-per-hour": price}) for name, price in (("dear", "9"), ("cheap", "2"), ("mid", "4"))
    ]
    one = Story([])
    one.config = from_mapping({"policy": policy, "batch": {"max_wait": 0}})
    one.scheduler = Scheduler(one.config, seed=1, scorers=runner)
    for raw in nodes:
        for spec in parse_node(raw):
            one.step(m.NodeJoined(node=spec, session=1))
    return one


def test_the_example_is_found_by_its_entry_point_and_ranks_nodes(installed: None) -> None:
    one = story(None, preset="first-fit", scorers={"cheapest": 1.0})
    for ident in ("a", "b", "c"):
        one.submit(task(ident, cpu=8))
    assert [one.node_of(ident) for ident in ("a", "b", "c")] == ["cheap", "mid", "dear"]
    (row,) = [row for row in one.scheduler.view.explain("a")["terms"] if row["term"] == "cheapest"]
    assert row["value"] == pytest.approx(1 - 2 / 9) and row["weight"] == 1.0
    assert row["what"] == "the plug-in cheapest" and row["source"].startswith("hetsched_cheapest:")


def test_laid_over_the_default_both_are_told_with_numbers(installed: None) -> None:
    one = story(None, scorers={"cheapest": 1.0})
    one.submit(task("a", cpu=8))
    own, plug_in = one.scheduler.view.explain("a")["terms"]
    assert (own["term"], own["preset"], plug_in["term"]) == ("preset", "price", "cheapest")
    assert own["value"] is not None and own["parts"][0]["part"] == "devices"


def test_a_scorer_that_is_not_installed_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="no scorer nobody is installed"):
        Scheduler(from_mapping({"policy": {"scorers": {"nobody": 1}}}))


def test_what_is_installed_and_not_named_is_never_loaded(installed: None) -> None:
    assert load_scorers(()) == {} and "hetsched_cheapest" not in sys.modules


def test_it_is_asked_for_shapes_and_nodes_not_for_tasks() -> None:
    asked: list[int] = []

    def count(shape: ShapeWords, nodes: Fleet) -> Any:
        asked.append(nodes.size)
        return np.zeros(nodes.size)

    one = story(Scorers({"count": count}), preset="first-fit", scorers={"count": 1.0})
    one.submit({"template": task("t", cpu=0.01), "count": 500})
    one.submit({"template": task("u", cpu=0.01), "count": 500})
    assert one.scheduler.view.explain("t-0")["terms"][-1]["value"] == 0.0  # as last said: reading asks nobody
    assert asked == [3]


def test_one_that_was_not_asked_is_not_said_to_have_been_dropped() -> None:
    """After a restart with another plug-in: who was placed before is ranked by it no more."""

    def likes(shape: ShapeWords, nodes: Fleet) -> Any:
        return np.full(nodes.size, 0.25)

    scorers = Scorers({"likes": likes, "bad": raises})
    one = story(scorers, preset="first-fit", scorers={"likes": 1.0, "bad": 1.0})
    one.submit(task("a"))
    placed = one.scheduler.world.ranking

    def told() -> dict[str, tuple[Any, str]]:
        rows = one.scheduler.view.explain("a")["terms"]
        return {row["term"]: (row["value"], row["what"]) for row in rows if row["term"] in scorers.scorers}

    dropped = "the plug-in bad (it gave nothing: dropped from the decision)"
    assert told() == {"likes": (0.25, "the plug-in likes"), "bad": (None, dropped)}
    one.scheduler.world.ranking = Ranking(placed.books, scorers)  # as a restart has it
    unasked = "(not asked about this, or long ago)"
    assert told() == {name: (None, f"the plug-in {name} {unasked}") for name in scorers.scorers}
    one.submit(task("b"))
    assert told() == {"likes": (0.25, "the plug-in likes"), "bad": (None, dropped)}
    assert scorers.dropped == {("bad", "raised"): 2}


def raises(shape: ShapeWords, nodes: Fleet) -> Any:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    "bad",
    [
        raises,
        lambda shape, nodes: np.zeros(nodes.size + 1),
        lambda shape, nodes: np.full(nodes.size, np.nan),
        lambda shape, nodes: ["text"] * nodes.size,
        lambda shape, nodes: None,
        lambda shape, nodes: setitem(nodes.present, slice(None), False) or np.ones(nodes.size),
    ],
)
def test_one_that_misbehaves_is_dropped_counted_and_harms_nobody(bad: Any) -> None:
    for scorers in (Scorers({"bad": bad}), ThreadedScorers({"bad": bad}, budget_s=5.0)):
        one = story(scorers, preset="first-fit", scorers={"bad": 1.0})
        one.submit(task("t"))
        assert one.node_of("t") == "dear"
        assert one.scheduler.world.ranking.dropped() == {("bad", "raised"): 1}


def test_a_slow_one_stalls_no_decision_and_its_late_answer_serves_the_next() -> None:
    gate, asked = threading.Event(), threading.Semaphore(0)

    def slow(shape: ShapeWords, nodes: Fleet) -> Any:
        asked.release()
        gate.wait(20)
        return [0.0, 0.0, 1.0]

    scorers = ThreadedScorers({"slow": slow}, budget_s=0.01)
    one = story(scorers, preset="first-fit", scorers={"slow": 1.0})
    began = time.monotonic()
    for ident in ("a", "b", "c"):
        one.submit(task(ident, cpu=0.1))
    assert [one.node_of(ident) for ident in ("a", "b", "c")] == ["dear"] * 3
    assert time.monotonic() - began < 10
    assert scorers.dropped["slow", "slow"] >= 1
    assert asked.acquire(timeout=5) and not asked.acquire(blocking=False)  # once, however often it was wanted
    gate.set()
    deadline = time.monotonic() + 10
    ident = ""
    while time.monotonic() < deadline and (not ident or one.node_of(ident) != "mid"):
        ident = f"late-{time.monotonic_ns()}"
        one.submit(task(ident, cpu=0.1))
    assert one.node_of(ident) == "mid"


def test_the_budget_is_of_the_decision_not_of_the_shape() -> None:
    """Ten calls of 0.2 s would be 2 s; after the budget the rest is asked in the next decisions."""
    now = [0.0]

    def dear(shape: ShapeWords, nodes: Fleet) -> Any:
        now[0] += 0.2
        return np.zeros(nodes.size)

    scorers = ThreadedScorers({"dear": dear}, budget_s=0.5, clock=lambda: now[0])
    nodes, shapes = fleet(node("a")), [shape(None, task_type=f"t{at}") for at in range(10)]
    scorers.begin()
    answered = [one for one in shapes if scorers.score(one, nodes, ["dear"])]
    assert len(answered) == 3 and scorers.dropped["dear", "slow"] == 7
    assert scorers.begin()
    assert len([one for one in shapes[3:] if scorers.score(one, nodes, ["dear"])]) == 3
