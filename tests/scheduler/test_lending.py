"""What is lent and what places are kept for is said, with numbers, to those who wait for it and to those who have it."""

from __future__ import annotations

from typing import Any

from hetsched.scheduler import messages as m
from tests.scheduler.build import Story, node, task
from tests.scheduler.test_overcommit import lent_out
from tests.scheduler.test_patience import scarce


def house(*, preemptible: bool, **queues: dict[str, int]) -> Story:
    """Four devices, all of them lent to `guest`."""
    story = Story([node("a", gpus=4)])
    for name, guaranteed in queues.items():
        story.queue(name=name, guaranteed=guaranteed)
    guest = task("guest", cpu=0, qos="best_effort", queue="guest", resources={"gpu": 1}, preemptible=preemptible)
    story.submit({"template": guest, "count": 4})
    story.wait(1)
    return story


def told(story: Story, ident: str) -> dict[str, dict[str, Any]]:
    """Every reason by code, the dominant one first."""
    answer = story.scheduler.view.explain(ident)
    first = {name: answer.get(name) for name in ("reason", "detail", "numbers")}
    return {one["reason"]: one for one in (first, *answer["secondary"])}


def test_who_waits_for_lent_guarantees_is_told_who_has_them_and_why_they_keep_them() -> None:
    story = house(preemptible=False, owner={"gpu": 2})
    story.submit(task("mine", queue="owner", qos="best_effort", resources={"gpu": 2}))
    story.wait(1)
    found = told(story, "mine")
    assert list(found) == ["guarantee_lent", "no_capacity"]
    assert found["guarantee_lent"]["numbers"] == {
        "queue": "owner",
        "guaranteed": {"gpu": 2},
        "used": {"gpu": 0},
        "borrowers": [{"queue": "guest", "beyond": {"gpu": 4}, "fixed": 4}],
    }
    assert "lent to guest, of whose tasks 4 may not be stopped" in found["guarantee_lent"]["detail"]


def test_a_gang_is_told_so_of_what_it_needs_as_a_whole() -> None:
    story = house(preemptible=False, owner={"gpu": 2})
    for size in (2, 3):
        crew = task(f"crew{size}", queue="owner", qos="best_effort", resources={"gpu": 1})
        story.submit({"template": {**crew, "gang": {"id": f"crew{size}", "size": size}}, "count": size})
    story.wait(1)
    assert next(iter(told(story, "crew2-0"))) == "guarantee_lent"
    assert "guarantee_lent" not in told(story, "crew3-0")


def test_who_asks_for_more_than_is_guaranteed_waits_for_capacity() -> None:
    story = house(preemptible=False, owner={"gpu": 2})
    story.submit(task("much", queue="owner", qos="best_effort", resources={"gpu": 3}))
    story.wait(1)
    assert "guarantee_lent" not in told(story, "much")


def test_who_runs_on_what_others_are_guaranteed_is_told_whose_it_is() -> None:
    story = house(preemptible=True, owner={"gpu": 2}, cores={"cpu": 2}, guest={"gpu": 1})
    found = told(story, "guest-0")["borrowed"]
    assert found["numbers"] == {"queue": "guest", "beyond": {"gpu": 3}, "owners": ["owner"]}
    story = house(preemptible=True, owner={"gpu": 2}, guest={"gpu": 4})
    assert "borrowed" not in told(story, "guest-0")


def test_who_stands_on_lent_cores_is_told_how_many() -> None:
    story = lent_out()
    found = told(story, "guest")
    assert found["lent"]["numbers"] == {"node": "n", "lent": {"cpu": 6}}
    assert "lent" not in told(story, "owner")


def test_who_waits_because_it_would_strand_devices_says_so() -> None:
    story = Story([node("a", gpus=4)], config={"policy": {"strand_limit": 1}})
    story.submit({"template": task("usual", cpu=2, resources={"gpu": 1}), "count": 60})
    story.wait(1)
    story.ask(m.Cancel(ids=tuple(f"usual-{at}" for at in range(4, 60))))
    for at in range(4):
        story.end(f"usual-{at}")
    story.submit(task("cores", cpu=4))
    story.wait(1)
    answer = story.scheduler.view.explain("cores")
    assert (answer["reason"], answer["nodes"]) == ("stranding", {"stranding": 1})
    assert story.scheduler.view.pending_by_reason()["stranding"] == 1


def test_pending_by_reason_tells_patience_from_the_window() -> None:
    story = scarce()
    story.wait(20)
    found = story.scheduler.view.pending_by_reason()
    assert (found["patience"], found.get("window")) == (1, None)


def test_whom_whole_nodes_are_kept_for_is_said_to_small_work() -> None:
    story = Story([node(f"n{at}", cpu=64, gpus=8) for at in range(4)])
    for at in range(60):
        story.submit(task(f"t{at}", qos="critical", resources={"gpu": 8 if at % 2 else 1}, duration=1))
        story.wait(2)
        story.end(f"t{at}")
    story.submit(task("small", qos="critical", resources={"gpu": 1}))
    found = told(story, "small")["kept_whole"]
    assert found["numbers"]["kind"] == "gpu" and found["numbers"]["wanted_together"] > 0.8
    assert "need more whole ones together" in found["detail"]
    story.submit(task("large", qos="critical", resources={"gpu": 8}))
    assert "kept_whole" not in told(story, "large")
