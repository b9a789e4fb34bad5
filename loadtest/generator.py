"""One generator process: draws arrivals, sends them as they fall due, writes down what came of each.

Promises: what is sent when depends on the clock alone, never on the answers (open loop); a request that cannot leave because all
connections wait is late, and its lateness counts, since every latency runs from the intended arrival.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import uvloop

from hetsched._core import array_keys
from hetsched.model.columns import MEDIA as COLUMNS
from loadtest.arrivals import PoissonArrivals
from loadtest.board import Board
from loadtest.connections import Pool, Request
from loadtest.mix import Mix, read_mix
from loadtest.rows import identity, row_of

SINGLE, BULK, ARRAY, PACKED, PROCESS = "single", "bulk", "array", "packed", "process"
MODES = (SINGLE, BULK, ARRAY, PACKED, PROCESS)


class Plan(NamedTuple):
    """All that a generator process needs to know. Times: CLOCK_MONOTONIC ns."""

    number: int
    directory: Path
    capacity: int
    host: str
    port: int
    token: str
    run: str  # begins every id, so that a shared daemon's other tasks are not taken for ours
    mode: str
    mix: str
    rate_per_s: float
    start_ns: int  # it and the end are told once all are ready
    end_ns: int
    tick_s: float
    batch: int  # most tasks a request carries
    connections: int
    timeout_s: float
    seed: int


class Answer(msgspec.Struct):
    """What a 202 says, as far as it is looked at."""

    placement: dict[str, Any] | None = None
    placements: dict[str, Any] = {}
    rejected: list[Any] = []


decode_answer = msgspec.json.Decoder(Answer).decode


class Generator:
    """Arrivals in, requests out, answers onto the board."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._board = Board(plan.directory, plan.number, plan.capacity)
        self._mix = read_mix(plan.mix)
        self._random = np.random.default_rng([plan.seed, plan.number, 1])
        self._arrivals = PoissonArrivals(
            rate_per_s=plan.rate_per_s, start_ns=plan.start_ns, seed=plan.seed * 1000 + plan.number
        )
        self._requests_of: Callable[[int, int], Iterator[Request]] = _REQUESTS[plan.mode](self._mix, plan, self._board)
        self._rows = 0
        self.outcomes: Counter[str] = Counter()
        self.rejected = 0

    async def run(self) -> None:
        """Sends all that arrives until the end of the plan, then waits for the answers, at most a timeout."""
        plan = self._plan
        pool = Pool(
            plan.host,
            plan.port,
            _head(plan),
            size=plan.connections,
            timeout_s=plan.timeout_s,
            on_sent=self._on_sent,
            on_answer=self._on_answer,
        )
        await pool.open()
        # Alone, a task leaves when it arrives (to the millisecond that the event loop's timers have).
        tick_ns = 0 if plan.mode == SINGLE else int(plan.tick_s * 1e9)
        while (now_ns := time.monotonic_ns()) < plan.end_ns:
            self._arrive(now_ns, pool)
            next_ns = max(self._arrivals.next_ns(), now_ns + tick_ns)
            await asyncio.sleep((min(next_ns, plan.end_ns) - time.monotonic_ns()) / 1e9)
        self._arrive(plan.end_ns, pool)
        deadline_ns = time.monotonic_ns() + int(plan.timeout_s * 1e9)
        while pool.outstanding and time.monotonic_ns() < deadline_ns:
            await asyncio.sleep(0.01)
        pool.close()

    def _arrive(self, now_ns: int, pool: Pool) -> None:
        first = self._rows
        due = self._arrivals.until(now_ns)[: self._plan.capacity - first]
        end = self._rows = first + len(due)
        self._board.intended[first:end] = due
        self._board.kind[first:end] = self._mix.draw(len(due), self._random)
        for request in self._requests_of(first, end):
            pool.submit(request)

    def _on_sent(self, request: Request, now_ns: int) -> None:
        self._board.sent[request.rows] = now_ns

    def _on_answer(self, request: Request, outcome: int | str, body: bytes) -> None:
        now_ns = time.monotonic_ns()
        answer = None
        if outcome == 202:
            try:
                answer = decode_answer(body)
            except msgspec.MsgspecError:
                outcome = "protocol"
        self.outcomes[str(outcome)] += 1
        if answer is not None:
            self._board.acknowledged[request.rows] = now_ns
            self._board.answered[self._placed(request, answer)] = now_ns
            self.rejected += len(answer.rejected)

    def _placed(self, request: Request, answer: Answer) -> slice | list[int]:
        """Rows whose placement the answer brought along."""
        if answer.placement is not None:
            return request.rows
        found = [row_of(task, self._plan.run) for task in answer.placements]
        return [row for _, row in filter(None, found)]


def generate(plan: Plan, line: Connection) -> None:
    """The process: says that it is there, hears when to begin and to end, runs the plan and leaves `NUMBER.json` beside the board's columns."""
    line.send(None)
    start_ns, end_ns = line.recv()
    gc.freeze()
    generator = Generator(plan._replace(start_ns=start_ns, end_ns=end_ns))
    began_s = time.process_time()
    uvloop.run(generator.run())
    result = {
        "outcomes": dict(generator.outcomes),
        "rejected": generator.rejected,
        "cpu_s": time.process_time() - began_s,
    }
    (plan.directory / f"{plan.number}.json").write_text(json.dumps(result))


def _head(plan: Plan) -> bytes:
    media = COLUMNS if plan.mode == PACKED else "application/json"
    return (
        f"POST /v1/schedule HTTP/1.1\r\nHost: {plan.host}:{plan.port}\r\nAuthorization: Bearer {plan.token}\r\n"
        f"Content-Type: {media}\r\nContent-Length: "
    ).encode()


# ---- how the arrivals of one tick become requests


def _single(mix: Mix, plan: Plan, board: Board) -> Callable[[int, int], Iterator[Request]]:
    def requests(first: int, end: int) -> Iterator[Request]:
        for row, kind in zip(range(first, end), board.kind[first:end].tolist(), strict=True):
            yield Request(mix.task(kind, _identity(plan, row)), slice(row, row + 1))

    return requests


def _bulk(mix: Mix, plan: Plan, board: Board) -> Callable[[int, int], Iterator[Request]]:
    def requests(first: int, end: int) -> Iterator[Request]:
        for low in range(first, end, plan.batch):
            high = min(low + plan.batch, end)
            kinds = board.kind[low:high].tolist()
            tasks = [(kind, _identity(plan, row)) for kind, row in zip(kinds, range(low, high), strict=True)]
            yield Request(mix.bulk(tasks), slice(low, high))

    return requests


def _array(mix: Mix, plan: Plan, board: Board) -> Callable[[int, int], Iterator[Request]]:
    """An array job has one template, so all arrivals of a job get the class of its first."""

    def requests(first: int, end: int) -> Iterator[Request]:
        for low in range(first, end, plan.batch):
            high = min(low + plan.batch, end)
            kind = int(board.kind[low])
            board.kind[low:high] = kind
            yield Request(mix.array(kind, _identity(plan, low), high - low), slice(low, high))

    return requests


def _packed(mix: Mix, plan: Plan, board: Board) -> Callable[[int, int], Iterator[Request]]:
    def requests(first: int, end: int) -> Iterator[Request]:
        for low in range(first, end, plan.batch):
            high = min(low + plan.batch, end)
            ids = array_keys(f"{plan.run}.{plan.number}.".encode(), low, high - low)
            yield Request(mix.columns(board.kind[low:high], ids), slice(low, high))

    return requests


def _identity(plan: Plan, row: int) -> bytes:
    return identity(plan.run, plan.number, row)


_REQUESTS = {SINGLE: _single, BULK: _bulk, ARRAY: _array, PACKED: _packed, PROCESS: _array}
