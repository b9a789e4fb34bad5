"""Random small clusters full of gangs, judged by the auditor that knows only the rules: whole or not at all, nobody stopped in vain."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.sim.worlds import Run

SPAN_S = 600


@pytest.fixture(scope="module")
def audit(shared: Path) -> ModuleType:
    path = shared / "cases" / "audit.py"
    if not path.is_file():
        pytest.skip("no auditor beside the repository")
    spec = importlib.util.spec_from_file_location("audit", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.FIELDS.add("checkpoint")  # a field of the contract that it was written before
    return module


def nodes(chance: random.Random) -> list[dict[str, Any]]:
    racks = chance.choice((1, 2, 3))
    found = []
    for at in range(chance.randint(2, 7)):
        node: dict[str, Any] = {"name": f"n{at}", "cpu": chance.choice((8, 16, 32)), "memory": "64Gi"}
        node["labels"] = {"rack": f"r{at % racks}"}
        if chance.random() < 0.9:
            model = chance.choice(("A100", "T4"))
            node["devices"] = [{"kind": "gpu", "model": model, "count": chance.choice((1, 2, 4)), "memory": "40Gi"}]
        found.append(node)
    return found


def body(chance: random.Random, ident: str) -> dict[str, Any]:
    levels = ("critical", "production", "best_effort", "background")
    task: dict[str, Any] = {"id": ident, "qos": chance.choices(levels, (10, 35, 30, 25))[0]}
    task["duration"] = chance.choice((20, 60, 150, 400))
    task["resources"] = {"cpu": chance.choice((1, 1, 2, 4))}
    if chance.random() < 0.85:
        task["resources"]["gpu"] = chance.choice((1, 1, 1, 2, 4, 0.5))
    for name, share, choices in (
        ("grace", 0.5, (0, 1, 5, 30)),
        ("checkpoint", 0.3, (10, 60)),
        ("priority", 0.3, (-50, -10, 10, 50)),
        ("estimate", 0.5, (task["duration"],)),
        ("queue", 0.3, ("a", "b")),
        ("retries", 0.1, (0, 1, 8)),
    ):
        if chance.random() < share:
            task[name] = chance.choice(choices)
    return task


def scenario(seed: int, moves: str) -> dict[str, Any]:
    chance = random.Random(seed)
    cluster = nodes(chance)
    events: list[dict[str, Any]] = []
    gangs = []
    for at in range(chance.randint(10, 45)):
        when, task, size = round(chance.uniform(0, SPAN_S), 2), body(chance, f"t{at}"), chance.choice((1, 1, 1, 2, 4))
        if chance.random() < 0.4:
            size = chance.choice((2, 2, 3, 4, 6))
            task["gang"] = {"id": task["id"], "size": size}
            gangs.append((when, task["id"], size))
            if chance.random() < 0.35:
                task["gang"]["min_size"] = chance.randint(1, size)
            if chance.random() < 0.3:
                task["topology"] = {"same": chance.choice(("rack", "node")), "required": chance.random() < 0.8}
        events.append({"at": when, "submit": {"template": task, "count": size}})
    for when, ident, size in chance.choices(gangs, k=chance.choice((0, 1, 2, 4))) if gangs else ():
        at_s = round(when + chance.uniform(0, 200), 2)
        events.append({"at": at_s, "fail": {"task": f"{ident}-{chance.randrange(size)}", "reason": "exit 1"}})
    for node in chance.sample(cluster, chance.choice((0, 0, 1, 2))):
        at_s = round(chance.uniform(20, SPAN_S), 2)
        events.append({"at": at_s, "node_down": node["name"]})
        events.append({"at": round(at_s + chance.choice((5, 30, 50, 90, 200)), 2), "node_up": node["name"]})
    return {
        "seed": seed,
        "config": {"batch": {"max_wait": 0.05, "size": 256}, "preemption": {"consolidate": moves}},
        "nodes": cluster,
        "queues": [{"name": "a", "weight": 2}, {"name": "b", "weight": 1}],
        "events": sorted(events, key=lambda event: float(event["at"])),
        "until": 20000,
    }


def broken_laws(audit: ModuleType, run: Run, world: dict[str, Any]) -> list[Any]:
    """Without `cancel`: that a failed member cancels its gang is a rule which the auditor does not know."""
    events = [{**event, "_line": at} for at, event in enumerate(run.events, 1)]
    found = audit.audit(world, events, run.summary)
    return [violation for violation in found if violation[0] != "cancel"]


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 200))])
def test_gangs_break_no_law(audit: ModuleType, tmp_path: Path, seed: int) -> None:
    world = scenario(seed, "lower")
    assert broken_laws(audit, Run(tmp_path, world), world) == []


@pytest.mark.parametrize("seed", range(100, 106))
def test_moving_equals_breaks_no_other_law(audit: ModuleType, tmp_path: Path, seed: int) -> None:
    world = scenario(seed, "equal")
    run = Run(tmp_path, world)
    levels = {
        task["id"]: task["qos"]
        for task in (event["submit"]["template"] for event in world["events"] if "submit" in event)
    }
    for event in run.of("preempted"):
        victim, newcomer = (levels[name.rsplit("-", 1)[0]] for name in (event["task"], event["by"]))
        assert victim != newcomer or event["reason"] == "consolidate"
    assert [law for law in broken_laws(audit, run, world) if law[0] != "victim-qos"] == []


def slowly(world: dict[str, Any], seed: int) -> dict[str, Any]:
    """The same, but half of all tasks take their time to stop."""
    chance = random.Random(seed)
    for event in world["events"]:
        if "submit" in event and chance.random() < 0.5:
            event["submit"]["template"]["stop_time"] = chance.choice((1, 5, 30))
            event["submit"]["template"]["grace"] = 30
    return world


@pytest.mark.parametrize("moves", ["lower", "equal", "off"])
@pytest.mark.parametrize("seed", [1, 5, 163, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(201, 300))])
def test_nobody_starts_only_to_be_stopped_in_the_same_instant(tmp_path: Path, seed: int, moves: str) -> None:
    """163: a gang started when its last victim was gone, and the more urgent one that had come meanwhile had it stopped at once."""
    run = Run(tmp_path, slowly(scenario(seed, moves), seed))
    placed = {(event["task"], event["attempt"]): event["t"] for event in run.of("placed")}
    assert [event for event in run.of("preempted") if placed[event["task"], event["attempt"]] == event["t"]] == []
