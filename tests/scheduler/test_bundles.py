"""A bundle is what its tasks would have been one after the other: the same state, the same answers, and the same after a replay."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hetsched.model import parse_task
from hetsched.scheduler import messages as m
from hetsched.scheduler.bundles import known_of
from tests.scheduler.build import Story, node, task


def bundle(bodies: list[dict[str, Any]], *, single: bool = False) -> m.Bundle:
    known: dict[bytes, m.Known] = {}
    which, ids, counts = bytearray(), [], {}
    for body in bodies:
        found = known_of(parse_task({name: value for name, value in body.items() if name != "id"}))
        assert found is not None
        key = found.body + str((found.task.priority, found.task.deadline_ns)).encode()
        known.setdefault(key, found)
        counts[key] = counts.get(key, 0) + 1
        which += list(known).index(key).to_bytes(2, "little")
        ids.append(body.get("id", "").encode())
    actors = ["ann" if number % 2 else "bob" for number in range(len(bodies))] if single else []
    return m.Bundle(
        known=list(known.values()),
        which=which,
        ids=ids,
        counts=list(counts.values()),
        single=single,
        actors=actors,
        actor="" if single else "ann",
    )


def some(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Bodies of a few kinds; some without id."""
    bodies = []
    for number in range(count):
        body = task(
            f"b{rng.randrange(10**9)}-{number}", cpu=rng.choice([1, 2]), qos=rng.choice(["critical", "production"])
        )
        body |= rng.choice([{}, {"deadline": 60}, {"priority": 5}, {"queue": "q/x"}, {"checkpoint": 30}])
        if rng.random() < 0.2:
            del body["id"]
        bodies.append(body)
    return bodies


def world() -> Story:
    return Story([node("a", cpu=4), node("b", cpu=4)], config={"batch": {"size": 4}})


@pytest.mark.parametrize("seed", range(5))
def test_a_bundle_is_the_list_of_its_tasks(seed: int) -> None:
    rng = random.Random(seed)
    bundled, listed = world(), world()
    for _ in range(6):
        bodies = some(rng, rng.choice([1, 3, 8]))
        one, other = bundled.ask(bundle(bodies)), listed.submit(bodies, actor="ann")
        assert [ident.decode() for ident in one.ids] == list(other.ids)
        assert one.placements == other.placements
        bundled.wait(0.1)
        listed.wait(0.1)
    assert bundled.events == listed.events
    assert bundled.scheduler.digest() == listed.scheduler.digest()
    assert bundled.replayed().digest() == bundled.scheduler.digest()


def test_of_singles_only_the_faulty_ones_are_refused() -> None:
    story = world()
    story.submit(task("old"))
    reply = story.ask(bundle([task("new"), task("old", cpu=2), task("old"), task("new")], single=True))
    assert list(reply.refused) == [1] and reply.refused[1].status == 409
    assert [story.state(name) for name in ("new", "old")] == ["queued", "queued"]


def test_singles_are_audited_by_who_asked() -> None:
    story = world()
    story.ask(bundle([task("x"), task("y"), task("z")], single=True))
    assert [(word.actor, word.subject) for word in story.scheduler.books.audit] == [
        ("bob", "x and 1 more"),
        ("ann", "y"),
    ]


def test_a_list_of_which_one_is_taken_is_answered_as_ever() -> None:
    story = world()
    story.submit(task("old"))
    reply = story.ask(bundle([task("new"), task("old", cpu=2)]))
    assert isinstance(reply, m.SubmitReply) and reply.ids == ("new", None) and len(reply.rejected) == 1


def test_shapes_beyond_the_bound_are_refused_one_by_one() -> None:
    story = Story([], config={"limits": {"shapes": 2}})
    reply = story.ask(bundle([task("x", cpu=1), task("y", cpu=2), task("z", cpu=3)], single=True))
    assert list(reply.refused) == [2]


@pytest.mark.parametrize(
    "more", [{"after": ["x"]}, {"gang": {"id": "g", "size": 2}}, {"deadline": 5, "on_deadline": "expire"}], ids=str
)
def test_tasks_with_ties_are_none_for_bundles(more: dict[str, Any]) -> None:
    assert known_of(parse_task({"resources": {"cpu": 1}, **more})) is None


def array(body: dict[str, Any], count: int, base: str = "") -> m.Array:
    known = known_of(parse_task(body))
    assert known is not None
    return m.Array(known=known, base=base, count=count, actor="ann")


@pytest.mark.parametrize("qos", ["critical", "production"])
def test_an_array_is_the_list_of_its_tasks(qos: str) -> None:
    said, listed = world(), world()
    body = {"resources": {"cpu": 1}, "qos": qos, "retries": 0}
    answer = said.ask(array(body, 10, "a"))
    reply = listed.submit([{**body, "id": f"a-{number}"} for number in range(10)], actor="ann")
    assert (answer.first, answer.count, answer.placements) == ("a-0", 10, reply.placements)
    for story in (said, listed):
        story.wait(1)
        story.end("a-0")
        story.end("a-1", ok=False)
        story.wait(1)
    assert said.events == listed.events
    assert [said.task(f"a-{number}") for number in range(10)] == [listed.task(f"a-{number}") for number in range(10)]
    assert said.replayed().digest() == said.scheduler.digest()


def test_an_array_of_which_one_id_is_taken_is_judged_task_by_task() -> None:
    story = world()
    story.submit(task("a-1", cpu=3))
    reply = story.ask(array({"resources": {"cpu": 1}}, 3, "a"))
    assert reply.ids == ("a-0", None, "a-2") and reply.rejected[0][0] == 1


def test_an_array_without_a_name_is_given_one() -> None:
    story = world()
    answer = story.ask(array({"resources": {"cpu": 1}}, 3))
    assert answer.first.endswith("-0") and story.state(answer.first) == "queued"
