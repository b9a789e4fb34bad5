"""Every door says no in a sentence, and a refused call leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hetsched import _core
from hetsched._core import Core

from .world import World


def live_world() -> tuple[World, int, int]:
    world = World()
    world.node(cpu=1)
    running, waiting = world.tasks(["running", "waiting"], world.shape(cpu=1))
    world.place()
    return world, running, waiting


REFUSED: list[tuple[type[Exception], str, Callable[[Core, int, int], object]]] = [
    (
        ValueError,
        "is placed: only a queued task|only a waiting task",
        lambda core, running, waiting: core.hold(running, 2),
    ),
    (ValueError, "is queued: it has no live attempt", lambda core, running, waiting: core.requeue(waiting, 0)),
    (ValueError, "is queued: it has no live attempt", lambda core, running, waiting: core.back_off(waiting, 0)),
    (ValueError, "only a placed or running task", lambda core, running, waiting: core.stop(waiting, 0)),
    (ValueError, "not its current attempt", lambda core, running, waiting: core.started(running, 2)),
    (ValueError, "only a task in backoff", lambda core, running, waiting: core.ready(waiting)),
    (ValueError, "only a held task", lambda core, running, waiting: core.release(waiting, 2)),
    (ValueError, "only a terminal task can be forgotten", lambda core, running, waiting: core.forget(waiting)),
    (ValueError, "terminal state", lambda core, running, waiting: core.ended(waiting, _core.RUNNING, 0)),
    (ValueError, "it has no claim", lambda core, running, waiting: core.unclaim(waiting)),
    (ValueError, "held by HELD", lambda core, running, waiting: core.hold(waiting, 1)),
    (ValueError, "does not fit 16 bits", lambda core, running, waiting: core.set_priority(waiting, 40000)),
    (IndexError, "no task in slot 99", lambda core, running, waiting: core.task(99)),
    (IndexError, "no node in slot 7", lambda core, running, waiting: core.node_state(7)),
    (IndexError, "there is no 3", lambda core, running, waiting: core.device_state(0, 3)),
    (ValueError, "1 live allocations", lambda core, running, waiting: core.remove_node(0)),
    (ValueError, "level 8", lambda core, running, waiting: core.set_shape_node(0, 0, 8)),
    (ValueError, "column 8", lambda core, running, waiting: core.set_node_domain(0, 8, 1)),
    (ValueError, "min_size 3", lambda core, running, waiting: core.add_gang(2, 3, -1)),
    (ValueError, "weight 0", lambda core, running, waiting: core.set_queue(0, 0, [], [])),
    (ValueError, "resource 18", lambda core, running, waiting: core.set_queue(0, 1, [], [(18, 1)])),
    (ValueError, "at most 64", lambda core, running, waiting: core.add_node(1, 1, [(0, -1, -1, -1, -1)] * 65)),
    (ValueError, "1..999", lambda core, running, waiting: core.add_shape(0, 0, [(0, 0, 1, 1000, 0, ())], 0)),
    (ValueError, "one a kind", lambda core, running, waiting: core.add_shape(0, 0, [(0, 1, 0, 0, 0, ())] * 2, 0)),
    (ValueError, "2\\^53", lambda core, running, waiting: core.add_shape(-1, 0, [], 0)),
    (ValueError, "policy 99", lambda core, running, waiting: core.set_policy(99)),
    (ValueError, "levels 16", lambda core, running, waiting: core.decide(16)),
    (ValueError, "time goes back", lambda core, running, waiting: core.begin(0)),
    (ValueError, "behind the end", lambda core, running, waiting: core.peek_facts(1 << 30)),
]


@pytest.mark.parametrize(("error", "sentence", "call"), REFUSED)
def test_a_refusal_says_why_and_changes_nothing(
    error: type[Exception], sentence: str, call: Callable[[Core, int, int], object]
) -> None:
    world, running, waiting = live_world()
    before = world.core.digest(), world.core.peek_facts(0)[1]
    with pytest.raises(error, match=sentence):
        call(world.core, running, waiting)
    assert (world.core.digest(), world.core.peek_facts(0)[1]) == before


def accept(core: Core, *keys: bytes, **named: int) -> list[int]:
    arguments: dict[str, Any] = {
        "template": 0,
        "shape": 0,
        "queue": 0,
        "qos": 1,
        "flags": 0,
        "submitted_ns": 0,
        **named,
    }
    return core.accept(keys, **arguments)


@pytest.mark.parametrize(
    ("keys", "named", "error"),
    [
        ((b"new", b"waiting"), {}, KeyError),
        ((b"twice", b"twice"), {}, KeyError),
        ((b"ok", b""), {}, ValueError),
        ((b"ok", b"x" * 256), {}, ValueError),
        ((b"ok",), {"qos": 4}, ValueError),
        ((b"ok",), {"flags": _core.CLAIMING}, ValueError),
        ((b"ok",), {"shape": 5}, IndexError),
        ((b"ok",), {"gang": 0}, IndexError),
        ((b"ok",), {"checkpoint_ns": -1}, ValueError),
    ],
)
def test_a_run_is_accepted_whole_or_not_at_all(
    keys: tuple[bytes, ...], named: dict[str, int], error: type[Exception]
) -> None:
    world, _, _ = live_world()
    before = world.core.dump()
    with pytest.raises(error):
        accept(world.core, *keys, **named)
    assert world.core.dump() == before
    assert world.core.find(b"ok") == _core.NONE


def test_a_task_is_found_by_its_key_as_long_as_it_is_there() -> None:
    world = World()
    shape = world.shape()
    keys = [f"{'k' * (at % 200)}-{at}" for at in range(1, 2000)]
    slots = world.tasks(keys, shape)
    for slot in slots[::2]:
        world.core.ended(slot, _core.CANCELLED, 0)
        world.core.forget(slot)
    for at, key in enumerate(keys):
        assert world.core.find(key.encode()) == (_core.NONE if at % 2 == 0 else slots[at])
    assert world.core.task(slots[1]).key == keys[1].encode()


def test_pages_follow_submission_order_over_reused_slots() -> None:
    world = World()
    shape = world.shape()
    slots = world.tasks(["a", "b", "c"], shape)
    world.core.ended(slots[0], _core.CANCELLED, 0)
    world.core.forget(slots[0])
    late = world.task("d", shape, qos=3)
    assert late == slots[0]
    everything = (1 << 12) - 1
    assert world.core.page(-1, 2, everything) == slots[1:]
    assert world.core.page(world.core.task(slots[2]).sequence, 2, everything) == [late]
    assert world.core.page(-1, 9, everything, qos=3) == [late]
    assert world.core.page(-1, 9, 1 << _core.HELD) == []
    assert sum(world.core.by_queue(everything)) == 3
    assert world.core.by_queue(1 << _core.HELD) == [0] * len(world.core.by_queue(everything))


def test_holds_add_up_and_the_last_release_queues_it() -> None:
    world = World()
    world.node()
    task = world.task("t", world.shape(), flags=_core.HELD_DEPENDENCY)
    world.core.hold(task, _core.HELD_OPERATOR)
    assert world.place() == 0
    world.core.release(task, _core.HELD_DEPENDENCY)
    world.core.release(task, _core.HELD_OPERATOR)
    assert [fact[0] for fact in world.facts()] == [_core.F_HELD, _core.F_HELD, _core.F_READY]
    assert world.place() == 1


def test_telling_twice_is_harmless_where_agents_repeat_themselves() -> None:
    world, running, _ = live_world()
    world.run(running)
    world.run(running)
    world.core.stop(running, 3)
    world.run(running)
    assert [fact[0] for fact in world.facts()] == [_core.F_PLACED, _core.F_STARTED, _core.F_STOPPING]
    with pytest.raises(ValueError, match="is stopping"):
        world.core.stop(running, 3)


def test_a_bad_check_is_seen_at_once() -> None:
    """The checked core calls check() after every door: all other stories run on one."""
    Core(checked=True).check()
