"""The connection pool against a server that behaves badly: every request is answered once, nothing is sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from loadtest.connections import Pool, Request

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: "
OK = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}"
Behaviour = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that reads requests and lets `behaviour(number of the request, writer)` answer; yields port and bodies."""
    bodies: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.rsplit(b":", 1)[1]))
                bodies.append(body)
                await behaviour(len(bodies), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1], bodies


async def outcomes(
    behaviour: Behaviour, *, requests: int, size: int = 2, timeout_s: float = 5
) -> tuple[list[object], list[bytes]]:
    answers: list[object] = []
    async with serving(behaviour) as (port, bodies):
        pool = Pool(
            "127.0.0.1",
            port,
            HEAD,
            size=size,
            timeout_s=timeout_s,
            on_sent=lambda request, now_ns: None,
            on_answer=lambda request, outcome, body: answers.append(outcome),
        )
        await pool.open()
        for number in range(requests):
            pool.submit(Request(b"body %d" % number, slice(number, number + 1)))
        async with asyncio.timeout(10):
            while pool.outstanding:
                await asyncio.sleep(0.01)
        pool.close()
    return answers, bodies


async def test_requests_share_connections_that_stay_open() -> None:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    answers, bodies = await outcomes(answer, requests=50)
    assert answers == [202] * 50
    assert sorted(bodies) == sorted(b"body %d" % number for number in range(50))


async def test_an_answer_in_crumbs_is_one_answer() -> None:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        for byte in OK:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    assert (await outcomes(answer, requests=3))[0] == [202] * 3


async def test_a_broken_connection_is_an_error_and_is_replaced() -> None:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 1:
            writer.transport.abort()
            await asyncio.sleep(0)
            raise ConnectionError
        writer.write(OK)

    answers, bodies = await outcomes(answer, requests=5, size=1)
    assert answers == ["connection", 202, 202, 202, 202]
    assert len(bodies) == 5, "nothing is sent twice"


async def test_silence_is_a_timeout() -> None:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        if number > 1:
            writer.write(OK)

    assert (await outcomes(answer, requests=3, size=1, timeout_s=0.3))[0] == ["timeout", 202, 202]


async def test_an_answer_without_a_length_is_refused() -> None:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")

    assert (await outcomes(answer, requests=1))[0] == ["protocol"]


async def test_the_server_may_close_after_an_answer() -> None:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    assert (await outcomes(answer, requests=3, size=1))[0] == [503] * 3
