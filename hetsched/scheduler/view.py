"""The read side: the state in the contract's words, as JSON-ready values. Changes nothing.

Times are RFC 3339 in UTC; shares are thousandths of a device, cpu is cores, memory is bytes, as in the contract.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, TypeVar

from hetsched import _core
from hetsched._core import NEVER_NS, NONE, TaskRow
from hetsched.errors import NotFound, Problem
from hetsched.model import Qos, State, task_to_json
from hetsched.scheduler.attempts import Attempt
from hetsched.scheduler.books import QOS_OF_LEVEL
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.explain import Explain
from hetsched.scheduler.lifecycle import CODE_OF_STATE, EVERY_MASK, LIVE_CODES, STATE_OF_CODE, states_mask
from hetsched.scheduler.world import World

MAX_PAGE = 10_000

Word = TypeVar("Word", State, Qos)


class View:
    """Questions of the API."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.books = world.books
        self.core = world.core
        self._explain = Explain(world)

    # -- tasks

    def slot(self, ident: str) -> int:
        """Slot of the task. Raises NotFound."""
        task = self.core.find(ident.encode())
        if task == NONE:
            raise NotFound(f"no task {ident}")
        return task

    def task(self, ident: str) -> dict[str, Any]:
        """One task whole: spec, state, attempts with reasons, placement, timestamps."""
        task = self.slot(ident)
        row = self.core.task(task)
        body = self.world.body(task)
        attempts = self.books.attempts.all(task)
        out = self._row(row, task)
        out["spec"] = {**task_to_json(body), "id": ident, "priority": row.priority}
        out["attempts"] = [attempt_json(attempt) for attempt in attempts]
        out["preemptions"], out["failures"] = row.preemptions, row.failures
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
        return self._explain.task(self.slot(ident))

    def pending_by_reason(self) -> dict[str, int]:
        """Waiting tasks by coded reason, counted by shape."""
        return self._explain.pending_by_reason()

    # -- nodes and devices

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes, without their devices."""
        return [self._node_row(node) for node in self.books.cluster.by_name.values()]

    def node(self, name: str) -> dict[str, Any]:
        """One node with its devices and tasks. Raises NotFound."""
        node = self.books.cluster.by_name.get(name)
        if node is None:
            raise NotFound(f"no node {name}")
        out = self._node_row(node)
        out["devices"] = self._devices_of(node)
        out["tasks"] = [self.books.id_of(task) for task in self.core.tasks_on(node.slot)]
        return out

    def _node_row(self, node: Node) -> dict[str, Any]:
        cpu_free, memory_free, cpu, memory, allocations = self.core.node_state(node.slot)
        return {
            "name": node.name,
            "state": node.state,
            "cordoned": node.cordoned,
            "draining": node.draining,
            "cpu": cpu / 1000,
            "cpu_free": max(0, cpu_free) / 1000,
            "memory": memory,
            "memory_free": max(0, memory_free),
            "device_count": len(node.spec.devices),
            "running": allocations,
            "labels": node.spec.labels,
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.spec.taints],
            "volumes": list(node.spec.volumes),
        }

    def devices(self) -> list[dict[str, Any]]:
        """All devices of all nodes."""
        return [row for node in self.books.cluster.by_name.values() for row in self._devices_of(node)]

    def _devices_of(self, node: Node) -> list[dict[str, Any]]:
        holders = self._holders(node)
        rows = []
        for index, spec in enumerate(node.spec.devices):
            used_milli, used_bytes, usable = self.core.device_state(node.slot, index)
            rows.append(
                {
                    "node": node.name,
                    "id": spec.id,
                    "kind": spec.kind,
                    "model": spec.model,
                    "health": node.health[index],
                    "health_reason": node.health_reason[index],
                    "usable": usable and node.is_open,
                    "share_used": used_milli,
                    "memory": spec.memory_bytes,
                    "memory_reserved": used_bytes,
                    "numa": spec.numa,
                    "nvlink": spec.nvlink,
                    "uuid": spec.uuid,
                    "tasks": holders.get(spec.id, []),
                }
            )
        return rows

    def _holders(self, node: Node) -> dict[str, list[dict[str, Any]]]:
        holders: dict[str, list[dict[str, Any]]] = {}
        for task in self.core.tasks_on(node.slot):
            live = self.books.attempts.live[task]
            for device, share in live.devices:
                entry = {"task": self.books.id_of(task), "attempt": live.number, "share": share}
                holders.setdefault(device, []).append(entry)
        return holders

    # -- queues and the whole

    def queues(self) -> list[dict[str, Any]]:
        """All queues."""
        return [self.queue(name) for name in sorted(self.books.queues.slot)]

    def queue(self, name: str) -> dict[str, Any]:
        """One queue: entitlement and use. Raises NotFound."""
        slot = self.books.queues.slot.get(name)
        if slot is None:
            raise NotFound(f"no queue {name}")
        spec = self.books.queues.spec[name]
        return {
            "name": name,
            "weight": spec.weight,
            "guaranteed": amounts_json(spec.guaranteed),
            "limit": amounts_json(spec.limit),
            "used": self._by_resource(self.core.queue_used(slot)),
            "waiting": len(self.core.page(0, 1 << 31, states_mask((_core.QUEUED,)), slot)),
            "running": len(self.core.page(0, 1 << 31, states_mask(LIVE_CODES), slot)),
        }

    def _by_resource(self, amounts: list[int]) -> dict[str, Any]:
        named = dict(zip(("cpu", "memory", *self.books.kinds.words), amounts, strict=False))
        return amounts_json(named)

    def cluster(self) -> dict[str, Any]:
        """Totals, use, fragmentation per kind, lanes' depth, counts by state."""
        totals = self.core.totals()
        counts = self.core.counts()
        nodes = self.books.cluster.by_name.values()
        return {
            "nodes": {"total": len(nodes), "open": sum(node.is_open for node in nodes)},
            "capacity": self._by_resource([capacity for capacity, _ in totals]),
            "used": self._by_resource([used for _, used in totals]),
            "fragmentation": {kind: self._fragmentation(i) for i, kind in enumerate(self.books.kinds.words)},
            "lanes": self.lanes(),
            "tasks": {str(state): counts[code] for code, state in STATE_OF_CODE.items()},
            "epoch": self.world.epoch,
            "policy": self.world.config.policy.preset,
        }

    def lanes(self) -> dict[str, int]:
        """Waiting tasks per lane."""
        immediate = sum(1 << level for level in self.books.immediate)
        return {
            "immediate": self.core.waiting(immediate),
            "batch": self.core.waiting(0b1111 & ~immediate),
            "backoff": self.core.counts()[_core.BACKOFF],
        }

    def _fragmentation(self, kind: int) -> dict[str, float]:
        fragment, free = self.core.fragmentation(kind)
        return {"ratio": fragment / free if free else 0.0, "fragment": fragment / 1000, "free": free / 1000}


# ---------------------------------------------------------------------- rendering


def iso(ns: int) -> str:
    """Nanoseconds since 1970 as RFC 3339, UTC, microseconds."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat().replace("+00:00", "Z")


def placement_of(attempt: Attempt) -> dict[str, Any]:
    """Where an attempt is or was."""
    return {
        "node": attempt.node,
        "devices": [{"id": ident, "share": share} for ident, share in attempt.devices],
        "attempt": attempt.number,
        "lane": attempt.lane,
    }


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    """One attempt's story."""
    return {
        **placement_of(attempt),
        "placed_at": iso(attempt.placed_ns),
        "started_at": iso(attempt.started_ns) if attempt.started_ns else None,
        "ended_at": iso(attempt.ended_ns) if attempt.ended_ns else None,
        "outcome": attempt.outcome or None,
        "reason": attempt.reason or None,
        "exit_code": attempt.exit_code,
    }


def amounts_json(amounts: dict[str, int]) -> dict[str, Any]:
    """Amounts by resource in the contract's units: cores, bytes, devices."""
    return {name: amount if name == "memory" else amount / 1000 for name, amount in amounts.items()}


# ---------------------------------------------------------------------- reading filters


def _word(words: type[Word], what: str, text: str) -> Word:
    try:
        return words(text)
    except ValueError:
        known = ", ".join(str(word) for word in words)
        raise Problem.at(f"?{what}", f"{text!r} is none of {known}", code="malformed") from None


def _time_ns(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Problem.at("?since", f"{text!r} is no RFC 3339 time", code="malformed") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9)


def _write_cursor(sequence: int) -> str:
    return base64.urlsafe_b64encode(sequence.to_bytes(8, "big")).decode().rstrip("=")


def _read_cursor(cursor: str) -> int:
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raw = b""
    if len(raw) != 8:
        raise Problem.at("?cursor", "it is not a cursor that this server gave", code="malformed")
    return int.from_bytes(raw, "big")
