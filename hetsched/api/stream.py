"""NDJSON bodies without end: taken frame by frame, each answered by a line when it is in the journal.

Asked for by `Accept: application/x-ndjson` beside the same Content-Type. Promises: no more than a frame and what the connection buffers are
held, however long the body; while a frame is on its way nothing further is read, so a client is as fast as the journal, and a full inbox makes
it wait instead of refusing it. A frame that is refused whole ends the stream with its problem as the last line; what was answered stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from aiohttp import web

from hetsched.api import body as bodies
from hetsched.api.call import Call
from hetsched.api.problem import plain
from hetsched.errors import HetschedError, Problem, TooBusy

FRAME_BYTES = 256 * 1024
PAUSE_S = 0.02

Answer = Callable[[Call, bytes, str], Awaitable[bytes]]
"""Submits a body and returns what is said of it."""


def is_asked(call: Call) -> bool:
    """Whether this request wants its frames answered one by one."""
    headers = call.request.headers
    wanted = headers.get("Accept", "").partition(";")[0].strip().lower() == bodies.NDJSON
    return wanted and headers.get("Content-Type", "").partition(";")[0].strip().lower() == bodies.NDJSON


async def schedule(call: Call, answer: Answer) -> web.StreamResponse:
    """Submit every frame. Before the first answer a fault is a status, afterwards a line."""
    kind = bodies.media_type(call.request, (bodies.NDJSON,))
    if call.request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise Problem("a body that is answered frame by frame cannot be compressed", code="unsupported_media")
    stream: web.StreamResponse | None = None
    try:
        async for frame in _frames(call):
            said = await _submitted(call, frame, kind, answer)
            if stream is None:
                stream = await _begin(call)
            await stream.write(said + b"\n")
    except HetschedError as error:
        if stream is None:
            raise
        await stream.write(msgspec.json.encode({"problem": error.body()}) + b"\n")
        stream.force_close()
    if stream is None:
        raise Problem.at("", "holds no task")
    await stream.write_eof()
    return stream


async def _submitted(call: Call, frame: bytes, kind: str, answer: Answer) -> bytes:
    while True:
        call.desk.taking()
        try:
            return await answer(call, frame, kind)
        except TooBusy:
            await asyncio.sleep(PAUSE_S)


async def _begin(call: Call) -> web.StreamResponse:
    stream = web.StreamResponse(status=202, headers={"Content-Type": bodies.NDJSON})
    await stream.prepare(call.request)
    return stream


async def _frames(call: Call) -> AsyncIterator[bytes]:
    """Whole lines, as they come: what one read brings, or FRAME_BYTES of it where lines are long or cut."""
    content, config = call.request.content, call.desk.config
    rest = b""
    while not content.at_eof():
        rest += await _piece(call, content.readany(), config.server.body_timeout)
        if len(rest) < FRAME_BYTES and not content.at_eof() and not rest.endswith(b"\n"):
            continue
        lines, newline, rest = rest.rpartition(b"\n")
        if len(rest) > config.limits.body_bytes:
            raise bodies.too_large(config.limits.body_bytes)
        if lines.strip():
            yield lines + newline
    if rest.strip():
        yield rest


async def _piece(call: Call, reading: Awaitable[bytes], deadline_s: float) -> bytes:
    try:
        async with asyncio.timeout(deadline_s):
            return await reading
    except TimeoutError:
        raise plain(408, "deadline", "The request came too slowly", f"nothing came for {deadline_s:g} s") from None
    except web.RequestPayloadError as error:
        raise Problem(f"the body cannot be read: {error}", code="malformed") from None
