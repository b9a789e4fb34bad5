"""The read side: the state in the contract's words, as JSON-ready values. Changes nothing.

Times are RFC 3339 in UTC; shares are thousandths of a device, cpu is cores, memory is bytes, as in the contract.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from hetsched import _core
from hetsched._core import NEVER_NS, NONE, TaskRow
from hetsched.errors import Problem
from hetsched.model import Qos, State, Task, task_to_json
from hetsched.scheduler import words
from hetsched.scheduler.books import QOS_OF_LEVEL
from hetsched.scheduler.cells.crossings import Away
from hetsched.scheduler.cells.view import crossing_explained, crossing_json
from hetsched.scheduler.explain import Explain
from hetsched.scheduler.lifecycle import CODE_OF_STATE, EVERY_MASK, STATE_OF_CODE, states_mask
from hetsched.scheduler.limits import OverLimit, over_limits
from hetsched.scheduler.rendering import attempt_json, iso, placement_of, use_json
from hetsched.scheduler.view_cluster import ClusterView
from hetsched.scheduler.view_profiles import profiles_json
from hetsched.scheduler.world import World

if TYPE_CHECKING:
    from hetsched.scheduler.graphs.view import GraphView

MAX_PAGE = 10_000

Word = TypeVar("Word", State, Qos)


class View(ClusterView):
    """Questions of the API. `graphs`: those about graphs, once the scheduler has its conductor."""

    graphs: GraphView

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._explain = Explain(world)

    # -- tasks

    def slot(self, ident: str) -> int:
        """Slot of the task. Raises NotFound."""
        task = self.core.find(ident.encode())
        if task == NONE:
            raise self.world.unknown(ident)
        return task

    def on_its_way(self, ident: str) -> tuple[Away, words.Sent, Task] | None:
        """The task, if it was sent to another cell that has not answered yet."""
        away = self.books.crossings.away.get(ident)
        if away is None or not away.number:
            return None
        sent = self.books.crossings.open[away.cell][away.number]
        (task,) = (task for task in self.books.crossings.unpack(sent.tasks) if task.id == ident)
        return away, sent, task

    def queue_of(self, ident: str) -> str:
        """Whose the task is, also of one that another cell has. Raises NotFound."""
        away = self.books.crossings.away.get(ident)
        return self.books.queues.name[self.core.task(self.slot(ident)).queue] if away is None else away.queue

    def task(self, ident: str) -> dict[str, Any]:
        """One task whole: spec, state, attempts with reasons, placement, timestamps."""
        if (away := self.on_its_way(ident)) is not None:
            return crossing_json(ident, *away)
        task = self.slot(ident)
        row = self.core.task(task)
        body = self.world.body(task)
        attempts = self.books.attempts.all(task)
        out = self._row(row, task)
        out["spec"] = {**task_to_json(body), "id": ident, "priority": row.priority}
        out["attempts"] = [attempt_json(attempt) for attempt in attempts]
        out["preemptions"], out["failures"] = row.preemptions, row.failures
        use = self.books.uses.by_task.get(task)
        if use is not None:
            out["used"] = use_json(use)
        claim = self.books.attempts.claims.get(task)
        if claim is not None:
            out["claim"] = self._explain.claim(task, claim)
        return out

    def _row(self, row: TaskRow, task: int) -> dict[str, Any]:
        body = self.world.body(task)
        live = self.books.attempts.live.get(task)
        out: dict[str, Any] = {
            "id": row.key.decode(),
            "state": str(STATE_OF_CODE[row.state]),
            "qos": str(QOS_OF_LEVEL[row.qos]),
            "lane": self.books.lane(row.qos),
            "queue": self.books.queues.name[row.queue],
            "kind": body.kind,
            "name": body.name,
            "labels": body.labels,
            "priority": row.priority,
            "attempt": row.attempt,
            "placement": None if live is None else placement_of(live),
            "submitted_at": iso(row.submitted_ns),
            "changed_at": iso(row.changed_ns),
            "deadline": None if row.deadline_ns == NEVER_NS else iso(row.deadline_ns),
        }
        if row.state > _core.SUCCEEDED:
            out["reason"] = self._end_reason(task)
        return out

    def _end_reason(self, task: int) -> str:
        past = self.books.attempts.past.get(task)
        return past[-1].reason if past else ""

    def tasks(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        label: str | None = None,
        qos: str | None = None,
        since: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """One page in order of submission. The cursor is a place in that order: a task present throughout is neither skipped nor
        repeated. Problem if a filter is no word of the contract."""
        wanted = self._filter(state, queue, qos, label)
        since_ns = 0 if since is None else _time_ns(since)
        after = 0 if cursor is None else _read_cursor(cursor)
        rows: list[dict[str, Any]] = []
        limit = max(1, min(limit, MAX_PAGE))
        while wanted is not None and len(rows) < limit:
            page = self.core.page(after, limit, *wanted[:3])
            for task in page:
                row = self.core.task(task)
                after = row.sequence
                if row.submitted_ns >= since_ns and self._has_label(task, wanted[3]):
                    rows.append(self._row(row, task))
                    if len(rows) == limit:
                        return {"tasks": rows, "next": _write_cursor(after)}
            if len(page) < limit:
                break
        return {"tasks": rows, "next": None}

    def _filter(
        self, state: str | None, queue: str | None, qos: str | None, label: str | None
    ) -> tuple[int, int, int, tuple[str, str] | None] | None:
        """(states, queue, qos, label) for the core; None: nothing can match."""
        states = EVERY_MASK
        if state is not None:
            states = states_mask(tuple(CODE_OF_STATE[_word(State, "state", s)] for s in state.split(",")))
        level = NONE if qos is None else _word(Qos, "qos", qos).level
        slot = NONE if queue is None else self.books.queues.slot.get(queue)
        if slot is None:
            return None
        pair = None
        if label is not None:
            key, _, value = label.partition("=")
            pair = (key, value)
        return states, slot, level, pair

    def _has_label(self, task: int, pair: tuple[str, str] | None) -> bool:
        return pair is None or self.world.body(task).labels.get(pair[0]) == pair[1]

    def explain(self, ident: str) -> dict[str, Any]:
        """Why the task waits, or why it is where it is."""
        if (away := self.on_its_way(ident)) is not None:
            return crossing_explained(ident, away[0])
        return self._explain.task(self.slot(ident))

    def profiles(self, task_type: str | None = None, *, with_times: bool = False) -> list[dict[str, Any]]:
        """Learned run times, of one type of task or of all."""
        return profiles_json(self.books.profiles, task_type, with_times=with_times)

    def limits(self, task: Task, count: int = 1) -> list[OverLimit]:
        """Queue limits that `count` such tasks would break if they started now."""
        return over_limits(self.books, task, count)

    def pending_by_reason(self) -> dict[str, int]:
        """Waiting tasks by coded reason, counted by shape."""
        return self._explain.pending_by_reason()


# ---------------------------------------------------------------------- reading filters


def _word(words: type[Word], what: str, text: str) -> Word:
    try:
        return words(text)
    except ValueError:
        known = ", ".join(str(word) for word in words)
        raise Problem.of_query(what, f"has to be one of {known}, is {text[:40]!r}") from None


def _time_ns(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Problem.of_query("since", f"has to be an RFC 3339 time, is {text[:40]!r}") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9)


def _write_cursor(sequence: int) -> str:
    return base64.urlsafe_b64encode(sequence.to_bytes(8, "big")).decode().rstrip("=")


def _read_cursor(cursor: str) -> int:
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raw = b""
    if len(raw) != 8:
        raise Problem.of_query("cursor", "is not a cursor that this server gave")
    return int.from_bytes(raw, "big")
