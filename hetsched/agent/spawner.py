"""The agent's hand on `hs-spawner` (`hetsched/agent/shim/c`): started once, started again should it die.

Promises: `ask` and `known` never block, and go out together once a turn of the loop; what the shims tell arrives in `heard`, all that came
at once in one call; when a spawner dies, `heard` gets `Died` after everything that was said before, so that the runner can look after
the orders it had not answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from hetsched.agent.records import Record
from hetsched.errors import ConfigError

log = logging.getLogger("hetsched.agent")

PROGRAM = Path(__file__).parent / "shim" / "hs-spawner"
_BUFFER_BYTES = 1 << 20
_READ_BYTES = 1 << 18

# As in shim/c/shim.h and order.c.
_HEAD = struct.Struct("<IIQ")
_ORDER = struct.Struct("<IIQQqqqiiIIII")
_STARTED = struct.Struct("<IIQd")
_ENDED = struct.Struct("<iBBH")
_KNOWN = ord("k")
_CLOSE_S = 5.0
_outlived_by: list[subprocess.Popen[bytes]] = []  # spawners that stay for the shims of an agent that closes
_NONE = -1


class Started(msgspec.Struct, frozen=True):
    """Of order `order`: its first process runs. `shim`: (pid, start time)."""

    order: int
    shim: tuple[int, int]
    pid: int
    at: float


class Ended(msgspec.Struct, frozen=True):
    """Nothing of it lives. `silent`: it left nothing to read, and its directory waits for `known` to become another attempt's."""

    order: int
    succeeded: bool
    exit_code: int | None
    reason: str
    silent: bool


class Unclear(msgspec.Struct, frozen=True):
    """The attempt had a shim before, or its shim died: what became of it is to be found out."""

    order: int


class Died(msgspec.Struct, frozen=True):
    """The spawner; orders that it had not handed on are lost."""


News = Started | Ended | Unclear | Died


class Spawner:
    """One child process of the agent. `tasks`, `lease`: where shims work. `errors`: the file that gets what they have to complain about.
    `descriptors`: limits (RLIMIT_NOFILE) of tasks. Raises ConfigError where the program was not built."""

    def __init__(
        self,
        tasks: Path,
        lease: Path,
        errors: Path,
        descriptors: tuple[int, int],
        heard: Callable[[list[News]], None],
    ) -> None:
        if not os.access(PROGRAM, os.X_OK):
            raise ConfigError(
                f"{PROGRAM} is not there or not executable; `make setup` or `python setup.py build_ext --inplace` builds it"
            )
        self.errors = errors
        self._arguments = [str(PROGRAM), str(tasks), str(lease), *map(str, descriptors)]
        self._heard = heard
        self._out = bytearray()
        self._in = bytearray()
        self._flush: asyncio.Handle | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._is_full = False

    @property
    def pid(self) -> int:
        """Of the present spawner; 0 = none."""
        return self._process.pid if self._process else 0

    def ask(self, order: int, record: Record) -> None:
        """Has the attempt begun; `order` is how the news will call it."""
        self._put(pack(order, record))

    def known(self, order: int) -> None:
        """Its end is in the ledger: the directory may be used again."""
        if self._channel is not None:
            self._put(_HEAD.pack(_HEAD.size, _KNOWN, order))

    def close(self) -> None:
        """Lets the spawner go, once all orders are handed on. Shims with a task stay, and it with them."""
        if self._channel is None or self._process is None:
            return
        self._send()
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel.fileno())
        loop.remove_writer(self._channel.fileno())
        _part(self._channel)
        if self._process.poll() is None:
            _outlived_by.append(self._process)
        self._channel = self._process = None
        self._out.clear()
        self._in.clear()

    # ------------------------------------------------------------------ the process

    def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        with theirs, self.errors.open("ab") as errors:
            # Not the agent's own stdout and stderr: shims would hold those pipes open long after it.
            self._process = subprocess.Popen(
                self._arguments,
                stdin=theirs.fileno(),
                stdout=errors,
                stderr=errors,
                cwd="/",
                env={},
                start_new_session=True,
            )
        self._channel = ours
        self._is_full = False
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    def _died(self) -> None:
        log.error("the spawner of the shims died; another one is started with the next order")
        self._out.clear()
        assert self._process is not None
        self._process.wait()
        self.close()
        self._heard([Died()])

    # ------------------------------------------------------------------ the stream

    def _put(self, frame: bytes) -> None:
        self._out += frame
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._flush = None
        if not self._out:
            return
        if self._channel is None:
            self._begin()
        assert self._channel is not None
        loop = asyncio.get_running_loop()
        try:
            sent = self._channel.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # it has died; `_read` will be told, and the runner asks again
        del self._out[:sent]
        if bool(self._out) != self._is_full:
            self._is_full = bool(self._out)
            if self._is_full:
                loop.add_writer(self._channel.fileno(), self._send)
            else:
                loop.remove_writer(self._channel.fileno())

    def _read(self) -> None:
        assert self._channel is not None
        try:
            raw = self._channel.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            raw = b""  # it died with words of ours unread
        if not raw:
            self._died()
            return
        self._in += raw
        news, used = unpack(self._in)
        del self._in[:used]
        if news:
            self._heard(news)


def _part(channel: socket.socket) -> None:
    """Says that there is no more, and waits until the spawner has closed its end: it has handed on what it was given, or is dead."""
    with channel, contextlib.suppress(OSError):
        channel.settimeout(_CLOSE_S)
        channel.shutdown(socket.SHUT_WR)
        while channel.recv(_READ_BYTES):
            continue


def pack(order: int, record: Record) -> bytes:
    """As `order_read` in shim/c/order.c has it."""
    texts = [
        record.name,
        record.workdir or "",
        record.executable or "",
        record.cgroup or "",
        "".join(f"{note}\n" for note in record.notes),
        *(text for limit in record.limits.items() for text in limit),
        *record.argv,
        *(f"{name}={value}" for name, value in record.env.items()),
    ]
    words = "\0".join(texts).encode(errors="surrogateescape") + b"\0"
    groups = struct.pack(f"<{len(record.groups)}I", *record.groups)
    length = _ORDER.size + len(groups) + len(words)
    padding = -length % 8
    head = _ORDER.pack(
        length + padding,
        ord("o"),
        order,
        record.generation,
        _NONE if record.time_limit_s is None else int(record.time_limit_s * 1e9),
        int(record.grace_s * 1e9),
        record.log_bytes,
        _NONE if record.uid is None else record.uid,
        _NONE if record.gid is None else record.gid,
        len(record.groups),
        len(record.limits),
        len(record.argv),
        len(record.env),
    )
    return b"".join((head, groups, words, bytes(padding)))


def unpack(raw: bytearray) -> tuple[list[News], int]:
    """The whole frames at the front, and how many bytes they are."""
    news: list[News] = []
    at = 0
    while at + _HEAD.size <= len(raw):
        length, kind, order = _HEAD.unpack_from(raw, at)
        if at + length > len(raw):
            break
        news.append(_news(chr(kind), order, raw, at + _HEAD.size))
        at += length
    return news, at


def _news(kind: str, order: int, raw: bytearray, at: int) -> News:
    match kind:
        case "s":
            shim, pid, start, when = _STARTED.unpack_from(raw, at)
            return Started(order, (shim, start), pid, when)
        case "e":
            code, succeeded, silent, length = _ENDED.unpack_from(raw, at)
            reason = raw[at + _ENDED.size : at + _ENDED.size + length].decode(errors="replace")
            return Ended(order, bool(succeeded), None if code < 0 else code, reason, bool(silent))
        case _:
            return Unclear(order)
