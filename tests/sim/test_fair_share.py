"""Fair share on the simulator: weights even out, guarantees are lent and taken back, limits hold, and evictions come to an end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.sim.worlds import Run, world

ENDS = ("requeued", "succeeded", "failed", "cancelled", "expired", "backoff")


def node(name: str = "n", gpu: int = 0, cpu: int = 256, memory: int = 1024) -> dict[str, Any]:
    devices = [{"kind": "gpu", "model": "A100", "count": gpu}] if gpu else []
    return {"name": name, "cpu": cpu, "memory": f"{memory}Gi", "devices": devices}


def stream(queue: str, count: int, duration: float = 10, at: float = 0, **resources: Any) -> dict[str, Any]:
    """Demand that lasts: `count` tasks of a queue at once. Best effort, so that they may be stopped."""
    body = {"id": f"{queue}.", "queue": queue, "qos": "best_effort", "resources": resources, "duration": duration}
    return {"at": at, "submit": {"template": {**body, "grace": 0}, "count": count}}


def held(run: Run, asked: dict[str, float], begin: float, end: float) -> dict[str, float]:
    """Mean of what each queue held from `begin` to `end`; `asked`: by task of each queue."""
    since: dict[str, float] = {}
    total = dict.fromkeys(asked, 0.0)

    def count(task: str, until: float) -> None:
        total[task.split(".")[0]] += max(0.0, min(until, end) - max(since.pop(task), begin))

    for event in run.events:
        if event["event"] == "placed":
            since[event["task"]] = event["t"]
        elif event["event"] in ENDS and event.get("task") in since:
            count(event["task"], event["t"])
    for task in list(since):
        count(task, end)
    return {queue: asked[queue] * seconds / (end - begin) for queue, seconds in total.items()}


def evicted(run: Run, since: float = 0) -> int:
    return sum(event["t"] >= since for event in run.of("preempted"))


def started_in_vain(run: Run) -> list[str]:
    """Attempts that were told to stop in the instant in which they were placed."""
    at = {(event["task"], event["attempt"]): event["t"] for event in run.of("placed")}
    return [event["task"] for event in run.of("preempted") if at[event["task"], event["attempt"]] == event["t"]]


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("late", [0, 33])
def test_two_queues_weighted_two_to_one_end_within_a_device_of_it(
    tmp_path: Path, sizes: tuple[int, int], late: float
) -> None:
    gold, tin = sizes
    queues = [{"name": "gold", "weight": 2}, {"name": "tin"}]
    events = stream("tin", 400, gpu=tin), stream("gold", 400, at=late, gpu=gold)
    run = Run(tmp_path, world(*events, nodes=[node(gpu=12)], queues=queues, until=300))
    found = held(run, {"gold": gold, "tin": tin}, 100, 300)
    assert abs(found["gold"] - 8) <= 1 and abs(found["tin"] - 4) <= 1, found
    assert evicted(run) == 0


@pytest.mark.parametrize("seed", range(4))
def test_queues_of_any_weights_and_durations_even_out(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    weights = [rng.randint(1, 4) for _ in range(3)]
    names = [f"q{at}" for at in range(3)]
    queues = [{"name": name, "weight": weight} for name, weight in zip(names, weights, strict=True)]
    events = [stream(name, 300, duration=rng.choice([5, 8, 13]), at=rng.choice([0, 20]), gpu=1) for name in names]
    events.sort(key=lambda event: event["at"])
    run = Run(tmp_path, world(*events, nodes=[node("a", gpu=8), node("b", gpu=16)], queues=queues, until=220))
    found = held(run, dict.fromkeys(names, 1), 100, 180)
    for name, weight in zip(names, weights, strict=True):
        assert abs(found[name] - 24 * weight / sum(weights)) <= 1, (weights, found)


def test_a_branch_shares_with_its_sibling_and_divides_within(tmp_path: Path) -> None:
    queues = [{"name": "research", "weight": 2}, {"name": "research/vision", "weight": 3}, {"name": "research/text"}]
    queues.append({"name": "ops"})
    names = ("research/vision", "research/text", "ops")
    events = [stream(name, 300, gpu=1) for name in names]
    run = Run(tmp_path, world(*events, nodes=[node(gpu=12)], queues=queues, until=200))
    found = held(run, dict.fromkeys(names, 1), 60, 200)
    assert [round(found[name]) for name in names] == [6, 2, 4], found


# ---------------------------------------------------------------------- guarantees, of whatever resource


def amount(resource: str, units: int) -> Any:
    return f"{units}Gi" if resource == "memory" else units


def house(resource: str, guaranteed: dict[str, int], limit: dict[str, int] | None = None) -> dict[str, Any]:
    """Eight of the resource on one node."""
    queues: list[dict[str, Any]] = [
        {"name": name, **({"guaranteed": {resource: amount(resource, units)}} if units else {})}
        for name, units in guaranteed.items()
    ]
    for queue in queues:
        if limit and queue["name"] in limit:
            queue["limit"] = {resource: amount(resource, limit[queue["name"]])}
    return {"nodes": [node(**{resource: 8})], "queues": queues, "config": {"batch": {"max_wait": 0.05}}}


def ask(resource: str, units: int) -> dict[str, Any]:
    """So much of it, and a little of what every task needs."""
    return {"cpu": 0.01, "memory": "1Mi", resource: amount(resource, units)}


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_what_is_guaranteed_is_lent_and_taken_back_and_not_more(tmp_path: Path, resource: str) -> None:
    events = (
        stream("guest", 7, duration=5000, **ask(resource, 1)),
        stream(
            "owner", 1, at=100, duration=5000, **ask(resource, 6)
        ),  # more than it is guaranteed: nobody is stopped for it
        {"at": 101, "submit": {**stream("owner", 1, **ask(resource, 4))["submit"]["template"], "id": "owner.mine"}},
    )
    run = Run(tmp_path, world(*events, until=400, **house(resource, {"owner": 4, "guest": 0})))
    assert [event["t"] for event in run.of("placed") if event["task"].startswith("guest")][:7] == [0.05] * 7
    stopped = [event for event in run.of("preempted") if event["t"] < 102]
    assert len(stopped) == 3 and {event["by"] for event in stopped} == {"owner.mine"}  # one was free
    assert ("placed", 101.05) in [(name, t) for t, name in run.story("owner.mine")]


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_nothing_is_taken_from_within_a_guarantee(tmp_path: Path, resource: str) -> None:
    events = (
        stream("guest", 8, duration=5000, **ask(resource, 1)),
        stream("owner", 4, at=100, duration=5000, **ask(resource, 2)),
    )
    world_of = house(resource, {"owner": 6, "guest": 5})
    run = Run(tmp_path, world(*events, until=400, **world_of))
    found = held(run, {"guest": 1, "owner": 2}, 200, 400)
    assert found == {"guest": 6, "owner": 2}, (
        "two of the three that it borrowed: a third would not have let a task of two in"
    )


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_a_limit_holds_however_much_is_free(tmp_path: Path, resource: str) -> None:
    events = (
        stream("capped", 9, duration=500, **ask(resource, 1)),
        stream("free", 2, at=10, duration=500, **ask(resource, 2)),
    )
    run = Run(tmp_path, world(*events, until=400, **house(resource, {"capped": 0, "free": 0}, limit={"capped": 3})))
    assert held(run, {"capped": 1, "free": 2}, 20, 400) == {"capped": 3, "free": pytest.approx(4, abs=0.01)}
    assert evicted(run) == 0


def test_a_guarantee_of_cores_stops_nobody_for_want_of_devices(tmp_path: Path) -> None:
    queues = [{"name": "owner", "guaranteed": {"cpu": 4}}, {"name": "guest"}]
    events = (
        stream("guest", 4, duration=5000, gpu=1),
        stream("owner", 1, at=10, duration=5000, gpu=1, cpu=1),
    )
    run = Run(tmp_path, world(*events, nodes=[node(gpu=4, cpu=8)], queues=queues, until=100))
    assert evicted(run) == 0


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
@pytest.mark.parametrize("size", [3, 5])
def test_a_gang_takes_back_what_is_guaranteed_to_all_of_it_or_waits(tmp_path: Path, resource: str, size: int) -> None:
    """Four are guaranteed and one is free. Three start as soon as the two who stand in their way are gone; for five nobody goes."""
    guests = stream("guest", 7, duration=5000, **ask(resource, 1))
    guests["submit"]["template"] |= {"grace": 20, "stop_time": 20}
    crew = stream("owner", size, at=100, duration=50, **ask(resource, 1))
    crew["submit"]["template"]["gang"] = {"id": "crew", "size": size}
    run = Run(tmp_path, world(guests, crew, until=150, **house(resource, {"owner": 4, "guest": 0})))
    started = [event["t"] for event in run.of("placed") if event["task"].startswith("owner")]
    assert (evicted(run), started) == ((2, [120.05] * 3) if size == 3 else (0, []))


# ---------------------------------------------------------------------- whom it costs


@pytest.mark.parametrize("how", ["one", "three", "gang"])
@pytest.mark.parametrize("level", ["production", "best_effort"])
@pytest.mark.parametrize("together", [True, False])
def test_who_borrows_goes_before_who_is_within_a_guarantee(
    tmp_path: Path, how: str, level: str, together: bool
) -> None:
    """Of less urgent ones both could go: `modest` would lose less work, but is owed what it has and would take it from `guest` in its turn. Of
    equals only who borrows."""
    queues = [
        {"name": "owner", "guaranteed": {"gpu": 3, "cpu": 16}},
        {"name": "modest", "guaranteed": {"gpu": 3}},
        {"name": "guest"},
    ]
    nodes = [node("n", gpu=6)] if together else [node("a", gpu=3), node("b", gpu=3)]
    crew = stream("owner", 1 if how == "one" else 3, at=100, duration=50, cpu=1, gpu=3 if how == "one" else 1)
    crew["submit"]["template"]["qos"] = level
    if how == "gang":
        crew["submit"]["template"]["gang"] = {"id": "crew", "size": 3}
    events = (
        stream("guest", 3, duration=5000, cpu=1, gpu=1),
        stream("modest", 3, at=60, duration=5000, cpu=1, gpu=1),
        crew,
    )
    run = Run(tmp_path, world(*events, nodes=nodes, queues=queues, until=140))
    assert sorted(event["task"] for event in run.of("preempted")) == ["guest.-0", "guest.-1", "guest.-2"]
    assert [event["t"] for event in run.of("placed") if event["task"].startswith("owner")][:1] == [100.05]


@pytest.mark.parametrize("crew", [1, 2])
def test_equals_within_their_guarantee_stay_whatever_else_they_hold(tmp_path: Path, crew: int) -> None:
    """`modest` is guaranteed its devices and no cores; `owner` is guaranteed cores, and devices that are there for nobody else."""
    queues = [{"name": "owner", "guaranteed": {"gpu": 2, "cpu": 16}}, {"name": "modest", "guaranteed": {"gpu": 4}}]
    mine = stream("owner", crew, at=50, duration=50, cpu=1, gpu=1)
    if crew > 1:
        mine["submit"]["template"]["gang"] = {"id": "crew", "size": crew}
    events = stream("modest", 4, duration=5000, cpu=1, gpu=1), mine
    run = Run(tmp_path, world(*events, nodes=[node(gpu=4)], queues=queues, until=200))
    assert run.of("preempted") == []


def test_a_guarantee_of_memory_stops_nobody_for_want_of_cores(tmp_path: Path) -> None:
    queues = [{"name": "owner", "guaranteed": {"memory": "64Gi"}}, {"name": "guest"}]
    events = (
        stream("guest", 4, duration=5000, cpu=2, memory="1Gi"),
        stream("owner", 1, at=10, duration=50, cpu=2, memory="1Gi"),
    )
    run = Run(tmp_path, world(*events, nodes=[node(cpu=8, memory=256)], queues=queues, until=100))
    assert evicted(run) == 0


def test_of_those_who_borrow_no_more_go_than_borrow(tmp_path: Path) -> None:
    """`half` is guaranteed two of its three: one of them borrows, and the other two are as good as `modest`'s."""
    queues = [
        {"name": "owner", "guaranteed": {"gpu": 2}},
        {"name": "half", "guaranteed": {"gpu": 2}},
        {"name": "guest"},
    ]
    crew = stream("owner", 2, at=100, duration=50, gpu=1)
    crew["submit"]["template"]["qos"] = "production"
    events = (
        stream("guest", 1, duration=5000, gpu=1),
        stream("half", 3, at=60, duration=5000, gpu=1),
        crew,
    )
    run = Run(tmp_path, world(*events, nodes=[node("n", gpu=4)], queues=queues, until=140))
    assert sorted(event["task"].split(".")[0] for event in run.of("preempted")) == ["guest", "half"]


def test_nobody_is_started_who_would_be_stopped_for_what_waits_behind_another_of_its_queue(tmp_path: Path) -> None:
    """The first of `owner` asks for more than there is; behind it waits one that is owed both devices. `guest` has the highest priority."""
    queues = [{"name": "owner", "guaranteed": {"gpu": 2}}, {"name": "guest"}]
    huge, mine, guest = stream("owner", 1, gpu=6), stream("owner", 1, gpu=2), stream("guest", 2, gpu=1)
    for submit, ident, priority in ((huge, "huge", 10), (mine, "mine", 0), (guest, "guest.", 20)):
        submit["submit"]["template"] |= {"id": ident, "priority": priority}
    nodes = [node("n", gpu=2), node("m", gpu=8)]
    closed = {"at": 0, "cordon": "m"}
    run = Run(tmp_path, world(closed, huge, mine, guest, nodes=nodes, queues=queues, until=5))
    assert started_in_vain(run) == [] and run.of("preempted") == []
    assert [event["task"] for event in run.of("placed")] == ["mine-0"]


def test_nobody_is_started_who_would_be_stopped_for_one_that_is_blocked_already(tmp_path: Path) -> None:
    """Two of `owner` are blocked. The first has a reservation and nobody to stop; the second could take back from `guest`, and does so before
    more of `guest` start on the devices that are free."""
    queues = [{"name": "owner", "guaranteed": {"gpu": 6}}, {"name": "guest"}]
    firm = stream("other", 1, duration=100, gpu=4)
    firm["submit"]["template"] |= {"preemptible": False}
    guest = stream("guest", 3, duration=5000, gpu=1)
    first, second = stream("owner", 1, at=10, duration=50, gpu=4), stream("owner", 1, at=10, duration=50, gpu=2)
    first["submit"]["template"] |= {"id": "first", "node_selector": {"zone": "z1"}}
    second["submit"]["template"] |= {"id": "second", "node_selector": {"zone": "z2"}}
    more = stream("guest", 3, at=10, duration=5000, gpu=1)
    more["submit"]["template"] |= {"id": "more."}
    nodes = [{**node("a", gpu=4), "labels": {"zone": "z1"}}, {**node("b", gpu=4), "labels": {"zone": "z2"}}]
    firm["submit"]["template"]["node_selector"] = {"zone": "z1"}
    run = Run(tmp_path, world(firm, guest, first, second, more, nodes=nodes, queues=queues, until=60))
    assert started_in_vain(run) == []


# ---------------------------------------------------------------------- no ping-pong, ever


@pytest.mark.parametrize("seed", range(16))
def test_under_constant_demand_evictions_end(tmp_path: Path, seed: int) -> None:
    """Random queues, guarantees of cores, memory and devices, tasks and gangs of random sizes that never end and arrive late: whoever has
    what he is owed stays. After the last arrival everything comes to rest."""
    rng = random.Random(seed)
    nodes = [node(f"n{at}", gpu=rng.choice([0, 4, 8]), cpu=16, memory=64) for at in range(3)]
    queues: list[dict[str, Any]] = []
    for at in range(4):
        kinds = rng.sample(["gpu", "cpu", "memory"], rng.randint(0, 3))
        guaranteed = {kind: amount(kind, rng.choice([2, 4, 8, 12])) for kind in kinds}
        queues.append({"name": f"q{at}", "weight": rng.randint(1, 3), **({"guaranteed": guaranteed} if kinds else {})})
    queues.append({"name": "q0/below", "weight": 2})
    events = []
    for at in range(12):
        resources = {
            "cpu": rng.choice([0.5, 1, 2, 5]),
            "memory": f"{rng.choice([1, 4, 9])}Gi",
            "gpu": rng.choice([0, 0, 1, 2]),
        }
        submit = stream(rng.choice(queues)["name"], rng.randint(1, 12), duration=10**6, at=10.0 * at, **resources)
        submit["submit"]["template"]["id"] = f"s{at}."
        submit["submit"]["template"]["qos"] = rng.choice(["best_effort", "best_effort", "background"])
        if seed >= 8 and at % 2:
            size = submit["submit"]["count"]
            submit["submit"]["template"]["gang"] = {"id": f"g{at}", "size": size, "min_size": rng.randint(1, size)}
        events.append(submit)
    run = Run(tmp_path, world(*events, nodes=nodes, queues=queues, until=5000))
    assert run.code == 0
    assert evicted(run, since=900) == 0, [event for event in run.of("preempted") if event["t"] >= 900]
    assert started_in_vain(run) == []


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_nothing_is_taken_back_that_only_moves_the_lack_whatever_the_size_of_the_cluster(
    tmp_path: Path, resource: str
) -> None:
    """The guest holds two and is guaranteed one: stopped, it lacks one, and the owner has one more. As parts of six or of seven that is
    the same, however they are rounded."""
    taken = []
    for size in range(3, 32):
        sizes = {"gpu": 0, "cpu": 64, "memory": 64} | {resource: size}
        guarantees = {"owner": size - 2, "guest": 1}
        queues = [{"name": name, "guaranteed": {resource: amount(resource, many)}} for name, many in guarantees.items()]
        events = (
            stream("firm", 1, duration=900, **ask(resource, size - 2)),
            stream("guest", 1, at=10, duration=900, **ask(resource, 2)),
            stream("owner", 1, at=20, duration=50, **ask(resource, 1)),
        )
        events[0]["submit"]["template"]["preemptible"] = False
        run = Run(tmp_path, world(*events, nodes=[node(**sizes)], queues=[*queues, {"name": "firm"}], until=100))
        assert len(run.of("placed")) == 2 + evicted(run)
        taken += [size] * evicted(run)
    assert taken == []


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_work_that_comes_and_goes_settles_too(tmp_path: Path, resource: str) -> None:
    """Each queue starts its next task as one ends: after what was borrowed was taken back once, nobody is stopped again."""
    events = (
        stream("guest", 300, duration=7, **ask(resource, 1)),
        stream("owner", 300, at=30, duration=5, **ask(resource, 1)),
        stream("other", 300, at=60, duration=9, **ask(resource, 2)),
    )
    run = Run(tmp_path, world(*events, until=200, **house(resource, {"owner": 3, "other": 2, "guest": 0})))
    assert 0 < evicted(run) <= 5 and evicted(run, since=61) == 0
    found = held(run, {"guest": 1, "owner": 1, "other": 2}, 100, 200)
    assert found["owner"] >= 2.7 and found["other"] >= 1.8, found
