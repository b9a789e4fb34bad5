"""Single tasks of a moment ride together; each who asked is told his own outcome, in order, and urgent ones wait for nobody."""

from __future__ import annotations

import asyncio
import time

import pytest

from hetsched.daemon import turns
from hetsched.daemon.turns import CROWD, LEAST_CROWD, LINGER_S, TurnLoop
from hetsched.errors import HetschedError, StoreLost, TooBusy, Unavailable
from hetsched.model import Qos, parse_task
from hetsched.scheduler.bundles import known_of
from hetsched.scheduler.messages import Bundle, BundleReply, Known
from tests.daemon.fakes import Echo, until
from tests.daemon.test_turns import World, running


def kind(**more: object) -> Known:
    known = known_of(parse_task({"resources": {"cpu": 1}, **more}))
    assert known is not None
    return known


def ask(loop: TurnLoop, known: Known, ident: bytes, actor: str, client: Client) -> None:
    loop.filling(known.task.qos is Qos.critical).add(known, ident, actor, client)


class Client:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def answered(self, reply: BundleReply, index: int) -> None:
        self.heard.append(reply.ids[index])

    def failed(self, error: HetschedError) -> None:
        self.heard.append(error)

    def told(self) -> None:
        self.heard.append("all")


async def after_a_crowd(world: World, client: Client, size: int) -> None:
    """A turn of so many singles is over."""
    for number in range(size):
        ask(world.loop, kind(), b"%d" % number, "", client)
    await until(lambda: len(client.heard) == size + 1)


async def test_singles_of_a_moment_are_one_bundle_among_what_else_was_heard() -> None:
    usual, other, ann, bob = kind(), kind(priority=1), Client(), Client()
    async with running(at_once=False) as world:
        for ident, known, client in [(b"a", usual, ann), (b"b", other, bob), (b"c", usual, ann)]:
            ask(world.loop, known, ident, client.__class__.__name__, client)
        world.loop.tell(Echo())
        ask(world.loop, usual, b"d", "", ann)
        await until(lambda: world.journal.waiting)
        first, echo, last = world.scheduler.steps[0]
        assert isinstance(first, Bundle) and isinstance(echo, Echo) and isinstance(last, Bundle)
        assert (first.ids, first.known, first.counts) == ([b"a", b"b", b"c"], [usual, other], [2, 1])
        assert bytes(first.which) == b"\0\0\1\0\0\0" and last.ids == [b"d"]
        assert not ann.heard, "it is not durable yet"
        world.journal.confirm()
        await until(lambda: len(ann.heard) == 5)
    assert ann.heard == [b"a", b"c", "all", b"d", "all"] and bob.heard == [b"b", "all"]


async def test_a_full_inbox_refuses_the_next_single() -> None:
    async with running(limit_tasks=2) as world:
        for ident in (b"a", b"b"):
            ask(world.loop, kind(), ident, "", Client())
        with pytest.raises(TooBusy):
            ask(world.loop, kind(), b"c", "", Client())


async def test_who_waits_when_the_journal_is_lost_is_told_that_nobody_knows() -> None:
    client = Client()
    async with running(at_once=False) as world:
        ask(world.loop, kind(), b"a", "", client)
        await until(lambda: world.journal.waiting)
        world.journal.waiting[0].set_exception(StoreLost("gone"))
        await until(lambda: client.heard)
        with pytest.raises(Unavailable):
            ask(world.loop, kind(), b"b", "", client)
    assert isinstance(client.heard[0], Unavailable) and client.heard[1] == "all"


@pytest.mark.parametrize("qos", ["production", "critical"])
async def test_after_a_crowd_the_next_waits_a_moment_for_company_unless_it_is_urgent(qos: str) -> None:
    client = Client()
    async with running() as world:
        await after_a_crowd(world, client, LEAST_CROWD)
        ask(world.loop, kind(qos=qos), b"x", "", client)
        began_s, steps = time.monotonic(), len(world.scheduler.steps)
        while len(world.scheduler.steps) == steps:
            await asyncio.sleep(0)
        waited_s = time.monotonic() - began_s
    assert (waited_s >= LINGER_S * 0.9) == (
        qos != "critical"
    ) or waited_s > 2 * LINGER_S  # the last: the machine was busy


@pytest.mark.parametrize(("came", "comes"), [(LEAST_CROWD, LEAST_CROWD), (CROWD + 5, CROWD), (6 * CROWD, 4 * CROWD)])
async def test_a_crowd_is_waited_for_until_it_is_there_again_and_a_large_one_until_most_of_it_is(
    monkeypatch: pytest.MonkeyPatch, came: int, comes: int
) -> None:
    monkeypatch.setattr(turns, "LINGER_S", 60.0)
    client = Client()
    async with running() as world:
        await after_a_crowd(world, client, came)
        for number in range(comes - 1):
            ask(world.loop, kind(), b"again-%d" % number, "", client)
        await asyncio.sleep(0.01)
        assert len(world.scheduler.steps) == 1, "one is missing"
        ask(world.loop, kind(), b"last", "", client)
        await until(lambda: len(client.heard) == came + 1 + comes + 1)
        assert len(world.scheduler.steps) == 2


async def test_a_crowd_is_not_waited_for_beside_what_presses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LINGER_S", 60.0)
    client = Client()
    async with running() as world:
        await after_a_crowd(world, client, CROWD)
        ask(world.loop, kind(), b"x", "", client)
        await asyncio.sleep(0.01)
        await world.loop.ask(Echo(say="now"))
        await until(lambda: client.heard[-2:] == [b"x", "all"])
