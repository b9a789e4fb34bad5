"""What crosses the line between the processes comes out as it went in."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import msgspec
import pytest

from hetsched.errors import Conflict, HetschedError, NotFound, Problem, StoreLost, TooBusy, Unavailable
from hetsched.front import messages as say
from hetsched.front.baton import Came, Giver, Receiver
from hetsched.front.line import Line
from hetsched.model import parse_submission, parse_task
from hetsched.scheduler.bundles import known_of
from hetsched.scheduler.messages import Submit
from tests.daemon.fakes import until

FULL = {
    "id": "t",
    "queue": "a/b",
    "qos": "background",
    "priority": -3,
    "deadline": 60,
    "labels": {"a": "ä"},
    "resources": {"cpu": "1500m", "memory": "1Gi", "gpu": {"count": 2, "share": 0.5, "model": ["A100"]}},
    "node_selector": {"zone": ["z1", "z2"]},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "topology": {"same": "rack", "required": True},
    "command": ["a", "b"],
    "env": {"A": "b"},
}


def through(message: Any, kinds: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=kinds)


@pytest.mark.parametrize("raw", [FULL, {"resources": {"cpu": 1}}, {**FULL, "deadline": "2030-01-01T00:00:00Z"}])
def test_a_kind_is_the_same_on_the_other_side(raw: dict[str, object]) -> None:
    known = known_of(parse_task(raw))
    assert known is not None
    heard = through(say.Kinds(first=0, kinds=[say.Kind.of(known)]), say.FromFront).kinds[0].known()
    assert (heard.task, heard.body, heard.flags) == (known.task, known.body, known.flags)


def test_a_submission_with_refusals_is_the_same_on_the_other_side() -> None:
    body = [FULL, {"id": "u", "resuorces": {}}, {"id": "w", "after": ["t"], "resources": {"gpu": 1}}, 7]
    asked = Submit(submission=parse_submission(body), idempotency_key="k", actor="me")
    heard = through(say.Whole.of(4, asked), say.FromFront).asked()
    assert (heard.idempotency_key, heard.actor, heard.submission.single) == ("k", "me", False)
    for was, now in zip(asked.submission.items, heard.submission.items, strict=True):
        if hasattr(was, "problem"):
            assert (now.index, now.id, now.problem.body()) == (was.index, was.id, was.problem.body())  # type: ignore[union-attr]
        else:
            assert now == was


@pytest.mark.parametrize(
    "error",
    [
        TooBusy("full", retry_after=2.5),
        Unavailable("no", leader="http://a", retry_after=0.0),
        Problem.at("/a", "is wrong", code="conflict"),
        Problem("x", status=421, title="T", type="urn:y", code="malformed"),
        Conflict("taken"),
        NotFound("none"),
        StoreLost("gone"),
        HetschedError("a fault"),
    ],
)
def test_an_error_is_answered_alike_on_the_other_side(error: HetschedError) -> None:
    heard = through(say.Failed(ticket=1, error=say.Told.of(error)), say.ToFront).error.error()
    assert (heard.status, heard.body(), heard.retry_after) == (error.status, error.body(), error.retry_after)
    assert getattr(heard, "leader", None) == getattr(error, "leader", None)


async def test_messages_arrive_whole_and_in_order_however_they_are_cut() -> None:
    heard: list[say.Left] = []
    line = Line(say.FromFront, heard.append, lambda: None)
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_unix_connection(lambda: line, sock=ours)
    said = []

    class Wire:
        def write(self, data: bytes) -> None:
            said.append(data)

    teller = Line(say.ToFront, heard.append, lambda: None)
    teller.connection_made(Wire())  # type: ignore[arg-type]
    teller.say(*(say.Left(connection=number) for number in range(1000)))
    whole = b"".join(said)
    for at in range(0, len(whole), 7):
        theirs.sendall(whole[at : at + 7])
        if at % 700 == 0:
            await asyncio.sleep(0)
    await until(lambda: len(heard) == 1000)
    assert [each.connection for each in heard] == list(range(1000))
    line.close()
    theirs.close()


async def test_connections_change_hands_with_all_that_was_read_of_them() -> None:
    taken: list[tuple[bytes, int, bytes]] = []

    def take(connection: socket.socket, came: Came, data: bytes) -> None:
        with connection:
            connection.setblocking(True)
            connection.sendall(b"%d" % came.connection)
        taken.append((came.address.encode(), came.connection, data))

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    giver, receiver = Giver(ours), Receiver(theirs, take)
    clients = []
    for number in range(40):
        client, end = socket.socketpair()
        clients.append(client)
        data = os.urandom(1 + 17_000 * number)
        came = Came(connection=number, address="a", is_tls=False, size=len(data))
        giver.give(end.detach(), came, data)
        clients[-1].settimeout(5)
    await giver.empty()
    await until(lambda: len(taken) == 40)
    assert [(number, len(data)) for _, number, data in taken] == [(n, 1 + 17_000 * n) for n in range(40)]
    assert [client.recv(10) for client in clients] == [b"%d" % number for number in range(40)]
    for client in clients:
        client.close()
    receiver.close()
    ours.close()
