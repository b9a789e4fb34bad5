"""Gangs that lose members, seen from outside: nobody takes their place, and they are whole again in time or start anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.worlds import Run, world

PAIRS = [{"name": f"pair-{n}", "cpu": 8, "devices": [{"kind": "gpu", "count": 2}]} for n in range(2)]
QUICK = {"config": {"batch": {"max_wait": 0.05}}}


def crew(size: int = 4, **more: Any) -> dict[str, Any]:
    gang = {"id": "crew", "size": size, **more.pop("gang", {})}
    return {"template": {"id": "crew", "resources": {"gpu": 1}, "gang": gang, "duration": 400, **more}, "count": size}


def stranger(ident: str = "stranger", **more: Any) -> dict[str, Any]:
    return {"id": ident, "resources": {"gpu": 1}, "duration": 30, "priority": 100, "queue": "others", **more}


def first(run: Run, task: str, event: str, after: float = 0) -> float:
    return next(t for t, name in run.story(task) if name == event and t >= after)


def test_a_member_that_fails_comes_back_into_its_place(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": crew()},
        {"at": 10, "submit": stranger()},
        *({"at": at, "fail": {"task": "crew-1", "reason": "exit 1"}} for at in (20, 40, 60)),
    ]
    run = Run(tmp_path, world(*events, nodes=PAIRS, until=900, **QUICK))
    assert first(run, "crew-1", "placed", after=60) < 70
    assert first(run, "stranger", "placed") == pytest.approx(400, abs=0.2)
    assert run.summary["succeeded"] == 5


def test_the_node_that_returns_is_the_gangs(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": crew()},
        {"at": 10, "submit": [stranger(f"s-{n}") for n in range(3)]},
        {"at": 100, "node_down": "pair-1"},
        {"at": 130, "node_up": "pair-1"},
    ]
    run = Run(tmp_path, world(*events, nodes=PAIRS, until=900, **QUICK))
    back = [event["t"] for event in run.of("placed") if event["task"].startswith("crew") and event["t"] > 100]
    assert len(back) == 2 and max(back) <= 130.1
    assert first(run, "s-0", "placed") > 400


def test_a_gang_that_is_not_whole_in_time_starts_anew_as_a_whole(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": crew(grace=0)},
        {"at": 10, "submit": [stranger(f"s-{n}", duration=50) for n in range(2)]},
        {"at": 100, "node_down": "pair-1"},
        {"at": 300, "node_up": "pair-1"},
    ]
    run = Run(tmp_path, world(*events, nodes=PAIRS, until=1200, **QUICK))
    assert {event["t"] for event in run.of("requeued") if event["reason"] == "gang"} == {160}
    assert first(run, "s-0", "placed") == pytest.approx(160, abs=0.2)
    assert {event["t"] for event in run.of("placed") if event["task"].startswith("crew") and event["t"] > 200} == {
        first(run, "crew-0", "placed", after=200)
    }
    assert run.summary["succeeded"] == 6


def test_above_min_size_the_claim_ends_and_the_gang_goes_on(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": crew(gang={"min_size": 2}, duration=1000, retries=9)},
        {"at": 10, "submit": stranger(duration=500)},
        *({"at": at, "fail": {"task": "crew-3", "reason": "exit 1"}} for at in (20, 30, 40, 55)),
    ]
    scenario = world(*events, nodes=PAIRS, until=2000, config={"batch": {"max_wait": 0.05}, "gang": {"repair": 5}})
    run = Run(tmp_path, scenario)
    gone = first(run, "crew-3", "backoff", after=50)
    assert first(run, "stranger", "placed") == pytest.approx(gone + 5, abs=0.2)
    assert first(run, "crew-0", "succeeded") == pytest.approx(1000, abs=0.2)


def test_less_urgent_work_does_not_slip_in_and_more_urgent_work_does(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": crew()},
        {"at": 10, "submit": stranger("low", qos="best_effort")},
        {"at": 20, "fail": {"task": "crew-1", "reason": "exit 1"}},
        {"at": 20.3, "submit": stranger("boss", qos="critical", duration=5)},
    ]
    run = Run(tmp_path, world(*events, nodes=PAIRS, until=900, **QUICK))
    assert first(run, "boss", "placed") == 20.3
    assert first(run, "crew-1", "placed", after=20) == pytest.approx(25.3, abs=0.2)
    assert first(run, "low", "placed") > 400
