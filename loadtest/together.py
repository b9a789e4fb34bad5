"""Several machines load one daemon together: they meet in the daemon's own Redis, start at one instant, and add up what each measured.

One leads (`--machines N`), the others `--join`. All keys are of one run, bounded in number and gone after an hour. Machines share no clock: the
start is told by the server's, and each translates it to its own by the quickest of a few questions (good to half of that round trip).

Promises: nobody sends before all are ready; a machine that does not come, or does not end, is named by how many are missing, within a bound.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import cast

import msgspec
import redis

from loadtest.tally import Tally

KEY = "{hetsched}:load:"
FORGET_S = 3600
GATHER_S = 300.0  # for all machines to come, and again to be ready
POLL_S = 0.05
LEAD_NS = 2_000_000_000  # from "all ready" to the start
QUESTIONS = 9


class MeetingError(Exception):
    """The machines did not come together; the message says what is missing."""


class Load(msgspec.Struct, frozen=True):
    """What every machine is told: its part is one `machines`-th of rate and nodes. `mix`: the text of the TOML file."""

    run: str
    url: str
    machines: int
    rps: float
    duration: float
    mode: str
    mix: str
    tick: float
    batch: int
    generators: int
    connections: int
    timeout: float
    drain: float
    nodes: int
    seed: int
    nice: int


class Part(msgspec.Struct, frozen=True):
    """What one machine measured. `fleet`: counts of its simulated nodes, if it had some."""

    tally: Tally
    fleet: dict[str, int]


class Meeting:
    """One machine's end. Raises MeetingError, also where the server cannot be reached."""

    def __init__(self, store: str, patience_s: float = GATHER_S) -> None:
        self._patience_s = patience_s
        try:
            self._redis = redis.Redis.from_url(store, socket_timeout=10, socket_connect_timeout=5)
            self._redis.ping()
        except (redis.RedisError, ValueError) as error:
            raise MeetingError(f"the store to meet in: {error}") from None

    def lead(self, load: Load) -> int:
        """Calls the others and waits for them; 0, the number of the machine that leads."""
        with _named():
            self._redis.set(self._key(load, "joined"), 0, ex=FORGET_S)
            self._redis.delete(self._key(load, "ready"), self._key(load, "start"), self._key(load, "parts"))
            self._redis.set(
                KEY + "plan", msgspec.json.encode(load), ex=FORGET_S
            )  # last: others wait for it, and join at once
        try:
            self._until(
                lambda: self._count(load, "joined"), load.machines - 1, "machines joined (hetsched load --join)"
            )
        finally:
            with _named():
                self._redis.delete(KEY + "plan")  # who comes now is too late
        return 0

    def join(self) -> tuple[Load, int]:
        """Waits until one leads; its load, and the number of this machine (1 and up)."""
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            with _named():
                found = cast("bytes | None", self._redis.get(KEY + "plan"))
                if found is not None:
                    load = msgspec.json.decode(found, type=Load)
                    number = self._redis.incr(self._key(load, "joined"))
                    if number < load.machines:
                        return load, number
                    raise MeetingError(f"the run {load.run} has its {load.machines} machines already")
            time.sleep(POLL_S)
        raise MeetingError(f"nobody leads a load (hetsched load --machines N): waited for {self._patience_s:.0f} s")

    def start(self, load: Load, number: int) -> int:
        """Waits until all are ready; the instant at which all begin, on this machine's CLOCK_MONOTONIC, ns."""
        with _named():
            self._redis.incr(self._key(load, "ready"))
            self._redis.expire(self._key(load, "ready"), FORGET_S)
        if number == 0:
            self._until(lambda: self._count(load, "ready"), load.machines, "machines ready")
            with _named():
                self._redis.set(self._key(load, "start"), self._now_ns() + LEAD_NS, ex=FORGET_S)
        self._until(lambda: int(self._count(load, "start") > 0), 1, "start told by the machine that leads")
        offset_ns = self._offset_ns()
        return self._count(load, "start") - offset_ns

    def tell(self, load: Load, part: Part) -> None:
        """What this machine measured, to the one that leads."""
        with _named():
            self._redis.rpush(self._key(load, "parts"), msgspec.msgpack.encode(part))
            self._redis.expire(self._key(load, "parts"), FORGET_S)

    def parts(self, load: Load, within_s: float) -> list[Part]:
        """Those of all others."""

        def told() -> int:
            with _named():
                return self._redis.llen(self._key(load, "parts"))

        self._until(told, load.machines - 1, "machines told what they measured", within_s)
        with _named():
            found = cast("list[bytes]", self._redis.lrange(self._key(load, "parts"), 0, -1))
        return [msgspec.msgpack.decode(each, type=Part) for each in found]

    # ---- inside

    def _key(self, load: Load, what: str) -> str:
        return f"{KEY}{load.run}:{what}"

    def _count(self, load: Load, what: str) -> int:
        with _named():
            return int(cast("bytes | None", self._redis.get(self._key(load, what))) or 0)

    def _until(self, count: Callable[[], int], wanted: int, what: str, within_s: float | None = None) -> None:
        within_s = self._patience_s if within_s is None else within_s
        deadline = time.monotonic() + within_s
        while (found := count()) < wanted:
            if time.monotonic() > deadline:
                raise MeetingError(f"{found} of {wanted} {what} within {within_s:.0f} s")
            time.sleep(POLL_S)

    def _now_ns(self) -> int:
        seconds, micros = self._redis.time()
        return seconds * 1_000_000_000 + micros * 1000

    def _offset_ns(self) -> int:
        """The server's clock less this machine's CLOCK_MONOTONIC."""
        found = []
        with _named():
            for _ in range(QUESTIONS):
                before_ns = time.monotonic_ns()
                server_ns = self._now_ns()
                after_ns = time.monotonic_ns()
                found.append((after_ns - before_ns, server_ns - (before_ns + after_ns) // 2))
        return min(found)[1]


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """Redis' errors become MeetingErrors."""
    try:
        yield
    except redis.RedisError as error:
        raise MeetingError(f"the store to meet in: {error}") from error
