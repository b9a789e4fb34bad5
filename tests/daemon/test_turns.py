"""The loop: nothing leaves before it is durable, everything leaves in order, and nothing happens for no reason."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from hetsched import wire
from hetsched.daemon import turns
from hetsched.daemon.clock import Clock
from hetsched.daemon.inbox import Inbox
from hetsched.daemon.turns import IN_FLIGHT, LEAST_HEARD, MOST_WAITING, Taken, TurnLoop
from hetsched.errors import NotFound, StoreLost, TooBusy, Unavailable
from hetsched.scheduler import messages as m
from tests.daemon.fakes import Echo, FakeJournal, FakeScheduler, until


class World:
    """A loop over fakes; `released` are the turns that left."""

    def __init__(self, journal: FakeJournal, limit_tasks: int) -> None:
        self.scheduler = FakeScheduler()
        self.journal = journal
        self.released: list[Taken] = []
        self.loop = TurnLoop(self.scheduler, journal, Clock(), Inbox(limit_tasks), self.released.append)


@contextlib.asynccontextmanager
async def running(*, at_once: bool = True, limit_tasks: int = 1000) -> AsyncIterator[World]:
    world = World(FakeJournal(at_once=at_once), limit_tasks)
    task = asyncio.create_task(world.loop.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_answer_waits_for_the_journal() -> None:
    async with running(at_once=False) as world:
        answer = asyncio.create_task(world.loop.ask(Echo(say="done")))
        await until(lambda: world.journal.waiting)
        await asyncio.sleep(0.02)
        assert not answer.done() and not world.released
        world.journal.confirm()
        assert await answer == "done"
        assert len(world.released) == 1


async def test_a_turn_without_facts_still_waits_for_the_turns_before_it() -> None:
    async with running(at_once=False) as world:
        first = asyncio.create_task(world.loop.ask(Echo(say=1)))
        await until(lambda: world.journal.waiting)
        second = asyncio.create_task(world.loop.ask(Echo(say=2, durable=False)))
        await until(lambda: len(world.scheduler.steps) == 2)
        await asyncio.sleep(0.01)
        assert not second.done(), "it would tell of a state that a crash could take back"
        world.journal.confirm()
        assert [await first, await second] == [1, 2]


async def test_turns_are_computed_while_at_most_four_appends_are_on_their_way() -> None:
    async with running(at_once=False) as world:
        answers = []
        for number in range(IN_FLIGHT + 2):
            answers.append(asyncio.create_task(world.loop.ask(Echo(say=number))))
            await asyncio.sleep(0.005)
        assert len(world.journal.waiting) == IN_FLIGHT
        for _ in range(IN_FLIGHT):
            world.journal.confirm()
        await until(lambda: world.journal.waiting)
        assert len(world.scheduler.steps) == IN_FLIGHT + 1, "what came meanwhile goes into one turn"
        world.journal.confirm()
        assert await asyncio.gather(*answers) == list(range(IN_FLIGHT + 2))


async def test_while_the_store_is_away_questions_do_not_pile_up_without_end() -> None:
    async with running(at_once=False) as world:
        first = asyncio.create_task(world.loop.ask(Echo(say="first")))
        await until(lambda: world.journal.waiting)
        answers = []
        for number in range(3 * MOST_WAITING):
            answers.append(asyncio.create_task(world.loop.ask(Echo(say=number, durable=False))))
            await asyncio.sleep(0.001)
        assert len(world.scheduler.steps) <= MOST_WAITING + IN_FLIGHT
        world.journal.confirm()
        assert [await first, *[await answer for answer in answers]] == ["first", *range(3 * MOST_WAITING)]
        assert await world.loop.ask(Echo(say="on", durable=False)) == "on"


async def test_readers_wait_until_what_they_saw_is_durable() -> None:
    async with running(at_once=False) as world:
        await asyncio.wait_for(world.loop.settled(), 0.1)
        world.loop.tell(Echo())
        await until(lambda: world.journal.waiting)
        reader = asyncio.create_task(world.loop.settled())
        await asyncio.sleep(0.01)
        assert not reader.done()
        world.journal.confirm()
        await asyncio.wait_for(reader, 1)


async def test_a_problem_among_the_answers_is_raised() -> None:
    async with running() as world:
        with pytest.raises(NotFound):
            await world.loop.ask(Echo(say=NotFound("no task x")))


async def test_a_full_inbox_refuses_submissions_but_takes_ends() -> None:
    async with running(at_once=False, limit_tasks=10) as world:
        waiting = [asyncio.create_task(world.loop.ask(Echo())) for _ in range(1)]
        for _ in range(IN_FLIGHT + 1):
            world.loop.tell(Echo())
            await asyncio.sleep(0.002)
        waiting.append(asyncio.create_task(world.loop.ask(Echo(), tasks=8)))
        await asyncio.sleep(0.002)
        with pytest.raises(TooBusy) as busy:
            await world.loop.ask(Echo(), tasks=3)
        assert busy.value.retry_after and world.loop.inbox.refused == 1
        world.loop.tell(Echo())
        world.journal.at_once = True
        while world.journal.waiting:
            world.journal.confirm()
        await asyncio.wait_for(asyncio.gather(*waiting), 1)


async def test_one_submission_larger_than_the_inbox_is_taken_when_it_is_empty() -> None:
    async with running(limit_tasks=10) as world:
        assert await world.loop.ask(Echo(say="large"), tasks=1000) == "large"


async def test_a_lost_journal_ends_the_loop_and_nobody_is_told_yes() -> None:
    world = World(FakeJournal(at_once=False), 10)
    running_loop = asyncio.create_task(world.loop.run())
    answer = asyncio.create_task(world.loop.ask(Echo(say="done")))
    await until(lambda: world.journal.waiting)
    reader = asyncio.create_task(world.loop.settled())
    await asyncio.sleep(0)
    world.journal.confirm(StoreLost("gone"))
    with pytest.raises(StoreLost):
        await running_loop
    for told in (answer, reader):
        with pytest.raises(Unavailable):
            await told
    with pytest.raises(Unavailable):
        world.loop.tell(Echo())
    assert not world.released


async def test_a_broken_scheduler_ends_the_loop() -> None:
    world = World(FakeJournal(), 10)
    running_loop = asyncio.create_task(world.loop.run())
    world.scheduler.fail = AssertionError("an invariant")
    answer = asyncio.create_task(world.loop.ask(Echo()))
    with pytest.raises(AssertionError):
        await running_loop
    with pytest.raises(Unavailable):
        await answer


async def test_closing_answers_what_was_taken_and_refuses_the_rest() -> None:
    world = World(FakeJournal(at_once=False), 10)
    running_loop = asyncio.create_task(world.loop.run())
    answer = asyncio.create_task(world.loop.ask(Echo(say="last")))
    await until(lambda: world.journal.waiting)
    world.loop.close()
    with pytest.raises(Unavailable):
        await world.loop.ask(Echo())
    world.journal.confirm()
    await asyncio.wait_for(running_loop, 1)
    assert await answer == "last"


async def test_it_sleeps_until_the_scheduler_wants_to_be_woken() -> None:
    async with running() as world:
        world.scheduler.wakes = [time.time_ns() + 50_000_000, time.time_ns() + 100_000_000]
        world.loop.tell(Echo())
        await until(lambda: len(world.scheduler.steps) == 3)
        await asyncio.sleep(0.1)
        assert len(world.scheduler.steps) == 3, "one turn for the input, one for each wake time, none for nothing"
        assert world.scheduler.times == sorted(world.scheduler.times)


async def test_a_wake_time_that_stays_in_the_past_is_no_busy_loop() -> None:
    async with running() as world:
        world.scheduler.wake_ns = lambda: 1  # type: ignore[method-assign]
        world.loop.tell(Echo())
        await asyncio.sleep(0.1)
        assert len(world.scheduler.steps) <= 102


async def test_who_asks_and_goes_away_leaves_nothing_behind() -> None:
    async with running(at_once=False) as world:
        asking = asyncio.create_task(world.loop.ask(Echo(say=1)))
        await until(lambda: world.journal.waiting)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        world.journal.confirm()
        await until(lambda: world.released)
        assert not world.loop._tickets


def heard(node: str) -> m.AttemptsSucceeded:
    tasks, attempts = wire.columns([(f"{node}-1", 1)])
    return m.AttemptsSucceeded(node=node, tasks=tasks, attempts=attempts)


async def after_many_told(world: World) -> None:
    """A turn in which so many agents told of attempts that the next one gathers."""
    for number in range(LEAST_HEARD):
        world.loop.tell(heard(f"n{number}"))
    await until(lambda: world.scheduler.steps)


async def test_what_many_agents_tell_is_gathered_unless_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "HEARD_LINGER_S", 60.0)
    async with running() as world:
        await after_many_told(world)
        for number in range(5):
            world.loop.tell(heard(f"n{number}"))
            await asyncio.sleep(0.002)
        assert len(world.scheduler.steps) == 1, "they wait for company"
        await world.loop.ask(Echo(say="now"))
        assert [len(inputs) for inputs in world.scheduler.steps] == [LEAST_HEARD, 6], "and are one turn"


async def test_what_many_agents_tell_is_gathered_for_a_moment_only() -> None:
    async with running() as world:
        await after_many_told(world)
        world.loop.tell(heard("n1"))
        await until(lambda: len(world.scheduler.steps) == 2)


async def test_what_few_agents_tell_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "HEARD_LINGER_S", 60.0)
    async with running() as world:
        for number in range(3):
            world.loop.tell(heard("n1"))
            await asyncio.sleep(0.002)
            assert len(world.scheduler.steps) == number + 1


async def test_nobody_is_gathered_for_beyond_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "HEARD_LINGER_S", 60.0)
    async with running() as world:
        await after_many_told(world)
        world.scheduler.wakes = [world.loop.clock.now_ns() + 5_000_000]
        world.loop.tell(heard("n1"))
        await until(lambda: len(world.scheduler.steps) >= 2)
