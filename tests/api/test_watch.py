"""Streams: events that can be taken up again where they broke off, and logs through the agent."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hetsched.model import runs
from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess

TASK = {"resources": {"cpu": 1}}


class Events:
    """One open stream, read event by event."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response

    def next(self) -> tuple[int, dict[str, Any]]:
        number = 0
        for raw in iter(self.response.readline, b""):
            line = raw.decode().rstrip("\n")
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: "):
                return number, json.loads(line[6:])
        raise EOFError

    def until(self, event: str, task: str | None = None) -> tuple[int, dict[str, Any]]:
        while True:
            number, found = self.next()
            if found["event"] == event and task in (None, found.get("task")):
                return number, found


@contextmanager
def events(daemon: DaemonProcess, query: str = "", **headers: str) -> Iterator[Events]:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=5)
    sent = daemon.headers(**headers)
    connection.request("GET", f"/v1/events{query}", headers=sent)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    try:
        yield Events(response)
    finally:
        response.close()
        connection.close()


def test_a_watcher_without_a_place_sees_what_happens_from_now_on(daemon: DaemonProcess) -> None:
    daemon.submit({"id": "before", **TASK})
    with events(daemon) as stream:
        daemon.submit({"id": "after", **TASK})
        number, event = stream.next()
        assert event["task"] == "after" and event["event"] == "queued" and event["seq"] == number


def test_a_stream_is_taken_up_again_where_it_broke_off(daemon: DaemonProcess) -> None:
    with events(daemon) as stream:
        daemon.submit([{"id": f"s-{i}", **TASK} for i in range(10)])
        seen = [stream.next() for _ in range(4)]
    last = str(seen[-1][0])
    for query, headers in (
        (f"?since={last}", {}),
        ("", {"Last_Event_ID": last}),
        ("?since=1", {"Last_Event_ID": last}),
    ):
        with events(daemon, query, **headers) as stream:
            rest = [stream.next() for _ in range(6)]
        assert [event["task"] for _, event in seen + rest] == [f"s-{i}" for i in range(10)]
        assert [number for number, _ in seen + rest] == list(range(seen[0][0], seen[0][0] + 10))


def test_a_reader_that_does_not_follow_gets_what_is_there_and_an_end(daemon: DaemonProcess) -> None:
    daemon.submit({"id": "there", **TASK})
    answer = daemon.get("/v1/events?since=0&follow=false")
    assert answer.status == 200 and answer.body.count(b"\ndata: ") >= 1 and b'"task":"there"' in answer.body


def in_runs(daemon: DaemonProcess, query: str) -> list[tuple[int, dict[str, Any]]]:
    """All that is there, as runs, told event by event as the other stream would."""
    answer = daemon.get(f"/v1/events{query}", headers=daemon.headers(Accept=runs.MEDIA))
    assert (answer.status, answer.headers["content-type"]) == (200, runs.MEDIA)
    bodies, rest = runs.cut(answer.body)
    assert not rest
    return [told for body in bodies for told in _each(runs.decode(body))]


def _each(run: runs.Run) -> Iterator[tuple[int, dict[str, Any]]]:
    if isinstance(run, runs.Single):
        yield run.seq, run.event
        return
    at = 0
    for number, task in enumerate(run.tasks.each()):
        told = {"seq": run.seq + number, "t": run.t_ns / 1e9, "event": "queued", "task": task}
        if isinstance(run, runs.Moves):
            told["event"] = run.names[run.what[number]]
            told["attempt"] = int.from_bytes(run.attempts[2 * number : 2 * number + 2], "little")
            if told["event"] == "placed":
                node, devices = run.machines[int.from_bytes(run.nodes[4 * number : 4 * number + 4], "little")]
                pieces = [run.devices[at + 1 + 3 * piece : at + 4 + 3 * piece] for piece in range(run.devices[at])]
                at += 1 + 3 * len(pieces)
                held = [{"id": devices[one[0]], "share": int.from_bytes(one[1:], "little")} for one in pieces]
                told |= {"node": node, "devices": held, "lane": run.lanes[run.levels[number]]}
        yield run.seq + number, told


async def test_runs_tell_the_same_events(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        gpus = {"kind": "gpu", "model": "A100", "count": 2}
        async with TestAgent(daemon, {"name": "n1", "cpu": 64, "memory": "64Gi", "devices": [gpus]}) as agent:
            daemon.submit({"template": {"id": "many", "resources": {"gpu": 0.25}, "duration": 0.01}, "count": 8})
            daemon.submit([{"id": f"one{at}x", **TASK} for at in range(3)])
            daemon.submit({"id": "limited", "time_limit": 60, **TASK})
            await agent.until(lambda: len(agent.running) == 12)
            await agent.until(lambda: daemon.get("/v1/cluster").json["tasks"]["running"] == 12)
            sent = daemon.get("/v1/events?since=0&follow=false").body.decode()
            told = [json.loads(line[6:]) for line in sent.splitlines() if line.startswith("data: ")]
            assert {event["event"] for event in told} >= {"queued", "placed", "running", "node_joined"}
            for since in range(len(told)):
                assert in_runs(daemon, f"?since={since}&follow=false") == [(each["seq"], each) for each in told[since:]]


def test_what_is_too_old_is_a_410_that_tells_what_is_kept(data_dir: Path) -> None:
    with DaemonProcess(data_dir, limits__events_kept=10) as daemon:
        daemon.submit([TASK] * 50)
        problem = daemon.get("/v1/events?since=3").problem()
        assert problem["status"] == 410 and "41" in problem["detail"]


def test_streams_are_bounded_in_number(data_dir: Path) -> None:
    with DaemonProcess(data_dir, limits__watchers=2) as daemon:
        with events(daemon), events(daemon):
            assert daemon.get("/v1/events").problem()["status"] == 429
        with events(daemon):
            pass


def test_a_stopping_daemon_ends_its_streams_at_once(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon, events(daemon) as stream:
        assert daemon.process is not None
        daemon.process.terminate()
        assert stream.response.read(1 << 16) is not None
        assert daemon.process.wait(5) == 0


# ---------------------------------------------------------------------- logs


async def test_a_log_comes_through_its_agent(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, {"name": "l1", "cpu": 4, "memory": "1Gi", "devices": [{"kind": "fpga"}]}) as agent:
        agent.logs["talker"] = b"".join(b"line %d\n" % i for i in range(100_000))
        daemon.submit({"id": "talker", "command": ["true"], "resources": {"fpga": 1}}, Prefer="wait=5")
        await agent.until(lambda: "talker" in agent.running)

        answer = await in_thread(daemon.get, "/v1/tasks/talker/logs")
        assert answer.status == 200 and answer.body == agent.logs["talker"]
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert (await in_thread(daemon.get, "/v1/tasks/talker/logs?offset=5&attempt=1")).body == agent.logs["talker"][
            5:
        ]
        assert (await in_thread(daemon.get, "/v1/tasks/talker/logs?follow=true")).body == agent.logs["talker"]
        assert (await in_thread(daemon.get, "/v1/tasks/talker/logs?attempt=9")).problem()["status"] == 404
        del agent.logs["talker"]
        assert (await in_thread(daemon.get, "/v1/tasks/talker/logs")).problem()["status"] == 404
    answer = await in_thread(daemon.get, "/v1/tasks/talker/logs")
    assert answer.problem()["status"] == 503, "its agent is away"
    daemon.submit({"id": "mute", "resources": {"npu": 1}})
    assert "no attempt yet" in (await in_thread(daemon.get, "/v1/tasks/mute/logs")).problem()["detail"]


async def in_thread(call: Any, *args: Any) -> Any:
    """The test's own loop has an agent to serve meanwhile."""
    import asyncio

    return await asyncio.to_thread(call, *args)
