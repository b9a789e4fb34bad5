"""A connection that brings nothing but single tasks is read by its lane itself, past its transport, until something else comes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from hashlib import sha256

import pytest

from hetsched import _core
from hetsched._scan import Filling, Lane, Sockets, answer_all
from hetsched.api.app import Listener
from hetsched.api.desk import Desk
from hetsched.api.fast import Counter
from hetsched.config import from_mapping
from hetsched.daemon.auth import Token, Tokens
from hetsched.daemon.inbox import singles_bundle
from hetsched.model import TaskDefaults
from hetsched.scheduler.messages import BundleReply

HEAD = b"POST /v1/schedule HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\n"
READ = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def request(ident: str) -> bytes:
    body = b'{"id":"%b","resources":{"cpu":1}}' % ident.encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Taker:
    """Takes single tasks and answers when told to. `fault`: what it raises instead."""

    def __init__(self) -> None:
        self.task_defaults = TaskDefaults()
        self.durability = "memory"
        self.fault: Exception | None = None
        self._filling: Filling | None = None

    def filling(self, is_urgent: bool) -> Filling:
        if self.fault is not None:
            raise self.fault
        self._filling = self._filling or Filling(singles_bundle(1), 100)
        return self._filling

    def answer(self) -> list[bytes]:
        """All that was taken; which."""
        filling, self._filling = self._filling, None
        assert filling is not None, "nothing was taken"
        filling.seal()
        ids = filling.bundle.ids
        states = bytes([_core.QUEUED]) * len(ids)
        answer_all(filling.askers, BundleReply(ids=ids, states=states, placements={}))
        return list(ids)


class Wire:
    """Notes what its lane tells it."""

    def __init__(self) -> None:
        self.rests: list[bytes] = []
        self.errors: list[Exception] = []

    def given_back(self, rest: bytes) -> None:
        self.rests.append(rest)

    def broken(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
def desk(taker: Taker) -> Desk:
    token = Token(name="ann", sha256=sha256(b"secret").hexdigest(), scopes=("submit",))
    desk = Desk(from_mapping({}), Tokens([token]), hosts=None, insecure=False)
    desk.taker = taker
    return desk


class Alone:
    """One lane that reads alone, between its sockets and a client."""

    def __init__(self, desk: Desk) -> None:
        self.sockets = Sockets()
        counter = Counter(desk, {})
        counter.read_by(self.sockets)
        self.client, self.ours = socket.socketpair()
        self.ours.setblocking(False)
        self.wire, self.written = Wire(), b""
        self.lane = Lane(counter, self.wire)
        self.lane.connect(self._write)
        assert self.lane.read_alone(self.ours.fileno())

    def _write(self, data: bytes) -> None:
        self.written += data

    def hears(self, data: bytes) -> None:
        self.client.sendall(data)
        self.sockets.ready()

    def close(self) -> None:
        self.client.close()
        self.ours.close()


@pytest.fixture
def alone(desk: Desk) -> Iterator[Alone]:
    alone = Alone(desk)
    yield alone
    alone.close()


def test_it_reads_and_answers_without_its_transport(alone: Alone, taker: Taker) -> None:
    for ident in ("a", "b"):
        alone.hears(request(ident))
        assert taker.answer() == [ident.encode()]
        answer = alone.client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 202 ") and b"Location: /v1/tasks/%b\r\n" % ident.encode() in answer
    assert len(alone.sockets) == 1 and not alone.written and not alone.wire.rests


@pytest.mark.parametrize(
    "rest", [READ, request("b")[:-1], b"\r\n", b"garbage", request("b").replace(b"resources", b"resuorces")]
)
def test_it_gives_back_what_is_not_for_it_and_reads_no_more(alone: Alone, taker: Taker, rest: bytes) -> None:
    alone.hears(request("a") + rest)
    assert alone.wire.rests == [rest] and len(alone.sockets) == 0
    assert taker.answer() == [b"a"] and b"/v1/tasks/a\r\n" in alone.written, (
        "by the transport, which may have more to say"
    )
    alone.hears(request("c"))
    assert alone.ours.recv(65536) == request("c"), "that is the transport's"


def test_it_leaves_the_end_to_its_transport(alone: Alone) -> None:
    alone.client.shutdown(socket.SHUT_WR)
    alone.sockets.ready()
    assert alone.wire.rests == [b""] and len(alone.sockets) == 0
    assert alone.ours.recv(1) == b"", "it hears of it, too"


def test_what_does_not_leave_at_once_is_left_to_its_transport(alone: Alone, taker: Taker) -> None:
    filled = 0
    while True:
        alone.hears(request("a"))
        taker.answer()
        if alone.written:
            break
        filled += 1
    assert alone.wire.rests == [b""] and filled > 1
    answers = alone.client.recv(1 << 24, socket.MSG_WAITALL | socket.MSG_DONTWAIT) + alone.written
    assert answers.count(b"HTTP/1.1 202 ") == filled + 1 and answers.endswith(b"}")


def test_nothing_is_read_of_a_connection_that_has_gone(alone: Alone) -> None:
    alone.lane.connect(None)
    alone.hears(request("a"))
    assert len(alone.sockets) == 0 and alone.ours.recv(65536) == request("a")


def test_an_error_of_one_connection_harms_no_other(alone: Alone, taker: Taker) -> None:
    taker.fault = ZeroDivisionError("a fault of the program")
    alone.hears(request("a"))
    assert alone.wire.errors == [taker.fault] and len(alone.sockets) == 0


async def test_a_client_of_the_listener_is_read_alone_from_its_second_task_to_its_next_other_request(
    desk: Desk, taker: Taker
) -> None:
    listener = Listener(desk, drain_s=1.0)
    port = await listener.start("127.0.0.1", 0, None)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def told(data: bytes, is_task: bool = True) -> int:
        """How many lanes read alone when that was answered."""
        writer.write(data)
        while is_task and taker._filling is None:
            await asyncio.sleep(0.001)
        if is_task:
            taker.answer()
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        assert listener._reading is not None
        return len(listener._reading)

    assert [await told(request(ident)) for ident in "abc"] == [0, 1, 1]
    assert await told(READ, is_task=False) == 0
    assert [await told(request(ident)) for ident in "de"] == [0, 1]
    writer.close()
    await listener.stop()
