"""Why what must be together is not, in numbers; and words about topology that the tables have no room for."""

from __future__ import annotations

from typing import Any

from tests.scheduler.build import Story

SIDES = [{"kind": "gpu", "count": 2, "numa": side} for side in (0, 1)]


def explained(story: Story, ident: str) -> dict[str, Any]:
    return story.scheduler.view.explain(ident)


def test_a_wall_is_explained_by_what_one_island_has() -> None:
    story = Story([{"name": "n", "cpu": 8, "devices": SIDES}])
    for ident in ("a", "b"):
        story.submit({"id": ident, "resources": {"gpu": 1}})
    story.submit({"id": "block", "resources": {"gpu": 1}})
    story.submit({"id": "pair", "resources": {"gpu": 2}, "topology": {"same": "numa", "required": True}})
    story.submit({"id": "three", "resources": {"gpu": 3}, "topology": {"same": "numa", "required": True}})
    story.wait(1)
    told = explained(story, "pair")
    assert told["reason"] == "no_capacity"
    assert "2 gpu on one numa are wanted, the most that one has free is 1, has at all 2" in told["detail"]
    assert told["numbers"]["together"] == {"gpu": {"wanted": 2, "free": 1, "ever": 2}}
    assert explained(story, "three")["reason"] == "unsatisfiable"
    assert (
        "3 gpu on one numa are wanted, the most that one has free is 1, has at all 2"
        in explained(story, "three")["detail"]
    )


def test_a_gang_is_told_what_it_must_share() -> None:
    story = Story([{"name": f"n{at}", "cpu": 1, "labels": {"rack": f"r{at}"}} for at in range(2)])
    for at in range(2):
        body = {"id": f"m{at}", "resources": {"cpu": 1}, "gang": {"id": "g", "size": 2}}
        story.submit({**body, "topology": {"same": "rack", "required": True}})
    story.wait(1)
    told = explained(story, "m0")
    assert told["reason"] == "gang_no_room"
    assert "needs room for 2 members at once on one rack: 1 of those that wait would fit now" in told["detail"]
    numbers = told["numbers"]
    assert (numbers["same"], numbers["fit_now"], numbers["fit_ever"]) == ("rack", 1, 1)


def test_a_wish_for_one_label_too_many_is_not_heard_and_refuses_nobody() -> None:
    story = Story([{"name": "n", "cpu": 64}])
    for at in range(12):
        gang = {"id": f"g{at}", "size": 1}
        story.submit({"id": f"m{at}", "resources": {"cpu": 1}, "gang": gang, "topology": {"same": f"label{at}"}})
    story.wait(1)
    assert all(story.task(f"m{at}")["state"] == "running" for at in range(12))
    body = {"id": "must", "resources": {"cpu": 1}, "gang": {"id": "g", "size": 1}}
    story.submit({**body, "topology": {"same": "rack", "required": True}})
    assert story.scheduler.books.cluster.labels.words[-1] == "rack"
    assert story.replayed().digest() == story.scheduler.digest()
