"""Answers that do not end by themselves: the event stream and followed logs. Bounded in number (`limits.watchers`).

The event stream is built on the ring: each watcher has only its place in it, so one that reads slowly is told 410 (as the last
event, `gone`) instead of costing memory. Logs come through the agent in windows; see `daemon/logs.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from hetsched.api.call import Call
from hetsched.api.protocol import Door
from hetsched.daemon.events import EventRing, len_of
from hetsched.errors import Gone, HetschedError, NotFound, Problem, TooBusy
from hetsched.model import runs
from hetsched.scheduler.messages import Event

AT_ONCE, RUNS_AT_ONCE = 500, 20_000
KEEP_ALIVE_S = 15.0
BIG = 2**62


async def events(call: Call) -> web.StreamResponse:
    """Events after `since` (or `Last-Event-ID`); without either, from now on. `follow=false` ends with what is there. Server-sent events, or
    runs where the client asks for those."""
    daemon = call.daemon
    ring = daemon.events
    form: Form = RUNS if runs.MEDIA in call.request.headers.get("Accept", "") else SENT
    follow = call.flag("follow", True)
    seq = _since(call)
    if seq is None:
        seq = ring.last_seq
    said, seq = form.after(ring, seq)
    with _watcher(call):
        stream = await _begin(call, form.media)
        await stream.write(form.opening)
        while call.desk.serves(daemon):
            if said:
                await stream.write(said)
            elif not follow:
                break
            elif not await ring.grown(seq, KEEP_ALIVE_S):
                await stream.write(form.keep_alive)
            try:
                said, seq = form.after(ring, seq)
            except Gone as gone:
                await stream.write(form.gone(gone))
                break
        await stream.write_eof()
    return stream


class Form(NamedTuple):
    """How events go over the line. `after(ring, seq)`: those that follow and the number of the last, or nothing and `seq`."""

    media: str
    opening: bytes
    keep_alive: bytes
    after: Callable[[EventRing, int], tuple[bytes, int]]
    gone: Callable[[Gone], bytes]


def _sent_after(ring: EventRing, seq: int) -> tuple[bytes, int]:
    found = ring.after(seq, AT_ONCE)
    return b"".join(map(_frame, found)), found[-1].seq if found else seq


def _runs_after(ring: EventRing, seq: int) -> tuple[bytes, int]:
    found = ring.parts_after(seq, RUNS_AT_ONCE)
    if not found:
        return b"", seq
    _, last = found[-1]
    return b"".join([part.frame(number) for number, part in found]), last.seq + len_of(last) - 1


def _frame(event: Event) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (event.seq, msgspec.json.encode(event.line()))


MEDIA = ("text/event-stream", runs.MEDIA)
SENT = Form(
    f"{MEDIA[0]}; charset=utf-8",
    b": hetsched events\nretry: 1000\n\n",
    b": keep-alive\n\n",
    _sent_after,
    lambda gone: b"event: gone\ndata: " + msgspec.json.encode(gone.body()) + b"\n\n",
)
RUNS = Form(
    runs.MEDIA,
    runs.KEEP_ALIVE,
    runs.KEEP_ALIVE,
    _runs_after,
    lambda gone: runs.frame(runs.Single(0, {"event": "gone", "problem": gone.body()})),
)


def _since(call: Call) -> int | None:
    """The number given last: a reconnecting EventSource repeats its first `since`, and says in the header how far it came."""
    header = call.request.headers.get("Last-Event-ID")
    if header is not None and header.strip():
        text = header.strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            detail = f"Last-Event-ID has to be a number, is {text[:40]!r}"
            raise Problem(detail, code="malformed", title="A header cannot be read")
        return int(text)
    return call.number("since", 0, 0, BIG) if "since" in call.query else None


# ---------------------------------------------------------------------- logs


async def logs(call: Call) -> web.StreamResponse:
    """Text of an attempt's stdout or stderr, through the agent that holds it. A standby sends all who ask to the leader: what it follows may
    not have the attempt yet."""
    daemon = call.daemon
    stream_name = call.choice("stream", ("stdout", "stderr")) or "stdout"
    follow = call.flag("follow")
    offset = call.number("offset", 0, 0, BIG)
    number = call.number("attempt", 0, 0, 2**31)
    task = call.name("id")
    attempt = _attempt(daemon.view.task(task), number)
    pieces = daemon.logs.read(attempt["node"], task, attempt["attempt"], stream_name, offset, follow=follow)
    with _watcher(call):
        async with contextlib.aclosing(pieces):
            # Before the answer begins, so that what is missing is a status and not a cut.
            first = await anext(pieces, None)
            stream = await _begin(call, "text/plain; charset=utf-8")
            await _pass_on(stream, first, pieces)
    return stream


async def _pass_on(stream: web.StreamResponse, first: bytes | None, pieces: AsyncIterator[bytes]) -> None:
    try:
        if first is not None:
            await stream.write(first)
            async for piece in pieces:
                await stream.write(piece)
    except HetschedError as error:
        # Cut the connection: an end that looks whole would be a lie.
        raise ConnectionResetError(f"the log broke off: {error}") from error
    await stream.write_eof()


def _attempt(task: dict[str, Any], number: int) -> dict[str, Any]:
    attempts: list[dict[str, Any]] = task.get("attempts", [])
    if not attempts:
        raise NotFound(f"task {task['id']} has had no attempt yet (it is {task['state']}), so there is no log")
    if number == 0:
        return attempts[-1]
    for attempt in attempts:
        if attempt["attempt"] == number:
            return attempt
    raise NotFound(
        f"task {task['id']} has no attempt {number}; known: {', '.join(str(a['attempt']) for a in attempts)}"
    )


# ---------------------------------------------------------------------- both


async def _begin(call: Call, content_type: str) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": content_type, "X-Accel-Buffering": "no"})
    await stream.prepare(call.request)
    return stream


@contextlib.contextmanager
def _watcher(call: Call) -> Iterator[None]:
    daemon = call.daemon
    limit = call.desk.config.limits.watchers
    if daemon.watchers >= limit:
        raise TooBusy(f"{limit} streams of events and logs are open (limits.watchers)", retry_after=5)
    door = call.request.protocol
    assert isinstance(door, Door)
    daemon.watchers += 1
    door.stream(asyncio.current_task())
    try:
        yield
    finally:
        door.stream(None)
        daemon.watchers -= 1
