"""The immediate lane beside bulk: a queue, a turn and a place in the journal of its own, and no answer out of order."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path

from hetsched.daemon.turns import BESIDE_URGENT, IN_FLIGHT
from hetsched.model import Submission, parse_submission
from hetsched.scheduler import messages as m
from tests.daemon.fakes import Echo, until
from tests.daemon.process import DaemonProcess
from tests.daemon.test_singles import Client, ask, kind
from tests.daemon.test_turns import running
from tests.front.clients import request
from tests.scheduler.build import Story


async def test_what_is_urgent_takes_a_turn_alone_and_the_rest_the_next() -> None:
    client = Client()
    async with running(at_once=False) as world:
        usual = asyncio.create_task(world.loop.ask(Echo(say="usual"), tasks=1))
        urgent = asyncio.create_task(world.loop.ask(Echo(say="urgent"), tasks=1, is_urgent=True))
        await asyncio.sleep(0)
        ask(world.loop, kind(qos="critical"), b"x", "", client)
        await until(lambda: len(world.scheduler.steps) == 2)
        first, second = world.scheduler.steps
        assert [type(each).__name__ for each in first] == ["Echo", "Bundle"] and len(second) == 1
        world.journal.confirm()
        world.journal.confirm()
        assert (await urgent, await usual) == ("urgent", "usual") and client.heard == [b"x", "all"]


async def test_urgent_turns_do_not_starve_the_others() -> None:
    """During every turn another urgent one comes."""
    async with running() as world:
        step = world.scheduler.step

        def stepping(inputs: list[m.Input], now_ns: int, *, only_urgent: bool = False) -> m.Turn:
            if len(world.scheduler.steps) < 5:
                world.loop.inbox.put_tasks(Echo(say="urgent"), 1, is_urgent=True)
            return step(inputs, now_ns, only_urgent=only_urgent)

        world.scheduler.step = stepping  # type: ignore[method-assign]
        usual = asyncio.create_task(world.loop.ask(Echo(say="usual"), tasks=1))
        await world.loop.ask(Echo(say="urgent"), tasks=1, is_urgent=True)
        await usual
        said = [[each.say for each in inputs] for inputs in world.scheduler.steps[:2]]  # type: ignore[attr-defined]
    assert said == [["urgent"], ["urgent", "usual"]]


async def test_what_is_urgent_need_not_wait_until_an_append_comes_back() -> None:
    async with running(at_once=False) as world:
        asking = []
        for number in range(IN_FLIGHT + 1):
            asking.append(asyncio.create_task(world.loop.ask(Echo(say=number), tasks=1)))
            await asyncio.sleep(0.005)
        assert len(world.journal.waiting) == IN_FLIGHT
        urgent = asyncio.create_task(world.loop.ask(Echo(say="urgent"), tasks=1, is_urgent=True))
        await until(lambda: len(world.journal.waiting) == IN_FLIGHT + 1)
        assert [each.say for each in world.scheduler.steps[-1]] == ["urgent"]  # type: ignore[attr-defined]
        for _ in range(IN_FLIGHT + 1):
            world.journal.confirm()
        assert await urgent == "urgent"
        await until(lambda: world.journal.waiting)
        world.journal.confirm()
        await asyncio.gather(*asking)


async def test_while_urgent_tasks_come_the_others_have_fewer_appends_on_their_way() -> None:
    async with running(at_once=False) as world:
        asking = [asyncio.create_task(world.loop.ask(Echo(say="urgent"), tasks=1, is_urgent=True))]
        for number in range(IN_FLIGHT):
            asking.append(asyncio.create_task(world.loop.ask(Echo(say=number), tasks=1)))
            await asyncio.sleep(0.005)
        assert len(world.journal.waiting) == 1 + BESIDE_URGENT
        while not all(task.done() for task in asking):
            if world.journal.waiting:
                world.journal.confirm()
            await asyncio.sleep(0.001)


async def test_a_stream_of_urgent_tasks_leaves_the_others_a_way() -> None:
    """There is always an urgent append on its way, and always another one asked for."""
    async with running(at_once=False) as world:
        urgent = [asyncio.create_task(world.loop.ask(Echo(say="urgent"), tasks=1, is_urgent=True))]
        usual = [asyncio.create_task(world.loop.ask(Echo(say=number), tasks=1)) for number in range(3)]
        while not all(task.done() for task in usual):
            urgent.append(asyncio.create_task(world.loop.ask(Echo(say="urgent"), tasks=1, is_urgent=True)))
            await asyncio.sleep(0.002)
            if len(world.journal.waiting) > 1:
                world.journal.confirm()
            assert len(urgent) < 50, "they wait for ever"
        while not all(task.done() for task in urgent):
            if world.journal.waiting:
                world.journal.confirm()
            await asyncio.sleep(0.001)


def test_the_batch_lane_waits_for_the_turn_after_an_urgent_one() -> None:
    story = Story([{"name": "n", "cpu": 8, "memory": "8Gi"}], config={"batch": {"size": 1}}, start=False)

    def step(ident: str, qos: str, *, only_urgent: bool) -> list[str]:
        ticketed = m.Submit(ticket=1, submission=_one({"id": ident, "qos": qos, "resources": {"cpu": 1}}))
        turn = story.scheduler.step([ticketed], story.now_ns, only_urgent=only_urgent)
        return [str(event.task) for event in turn.events if event.event == "placed"]

    assert step("usual", "production", only_urgent=True) == []
    assert story.scheduler.wake_ns() == story.now_ns, "another turn has to follow at once"
    assert step("urgent", "critical", only_urgent=True) == ["urgent"]
    story.now_ns += 10**9
    turn = story.scheduler.step([], story.now_ns)
    assert [event.task for event in turn.events if event.event == "placed"] == ["usual"]
    assert story.scheduler.wake_ns() is None


def _one(raw: dict[str, object]) -> Submission:
    return parse_submission(raw)


def test_answers_of_a_connection_keep_their_order_whatever_is_urgent_among_them(data_dir: Path) -> None:
    """Each kind twice beforehand, so that all go the fast way."""
    with DaemonProcess(data_dir) as daemon:
        bodies = [
            {"id": f"t{number}", "qos": "critical" if number % 3 == 0 else "production", "resources": {"cpu": 1}}
            for number in range(600)
        ]
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as line:
            line.sendall(b"".join(request(daemon, body) for body in bodies))
            line.shutdown(socket.SHUT_WR)
            answers = b"".join(iter(lambda: line.recv(65536), b""))
        found = [json.loads(each) for each in re.findall(rb'^(\{"id":.*?\}\})(?:HTTP|$)', answers, re.MULTILINE)]
        assert [each["id"] for each in found] == [body["id"] for body in bodies]
        assert [each["lane"] for each in found] == ["immediate" if n % 3 == 0 else "batch" for n in range(600)]
