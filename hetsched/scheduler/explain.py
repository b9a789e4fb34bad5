"""Why a task waits, or why it is where it is: one dominant coded reason with numbers, the others that are true beside it.

The order of `Waiting` in reasons.py is the order of precedence, so that reasons that are true at once do not overwrite each other in turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from hetsched import _core
from hetsched._core import TaskRow
from hetsched.model import Task
from hetsched.policy.price import FIRST_ASKED, wanted_together
from hetsched.policy.profiles import Prediction
from hetsched.scheduler import lending, reservations, together
from hetsched.scheduler.attempts import Attempt, Claimed
from hetsched.scheduler.gangs import awaited
from hetsched.scheduler.lifecycle import STATE_OF_CODE, WAITING_CODES
from hetsched.scheduler.limits import holders, over_limits
from hetsched.scheduler.order import order_json
from hetsched.scheduler.reasons import PRECEDENCE, Beside, Waiting
from hetsched.scheduler.rendering import iso
from hetsched.scheduler.seen import Seen
from hetsched.scheduler.view_profiles import prediction_json
from hetsched.scheduler.world import World

Found = tuple[str, str, dict[str, Any]]  # (code, sentence, numbers)

RULED_OUT = {
    "closed": "down, silent, draining or cordoned",
    "words": "ruled out by selector or taint",
    "model": "without a device of an allowed model",
    "devices": "with too few free devices",
    "device_memory": "with too little memory on each device",
    "topology": "without enough devices in one group",
    "cpu": "with too few free cores",
    "memory": "with too little free memory",
    "stranding": "where it would leave devices without cores (policy.strand_limit)",
}


class Explain:
    """Answers from the state as it is now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.core = world.core
        self.books = world.books
        self._seen = Seen()

    def task(self, task: int) -> dict[str, Any]:
        """The answer of `GET /v1/tasks/{id}/explain`."""
        row = self.core.task(task)
        out: dict[str, Any] = {"id": row.key.decode(), "state": str(STATE_OF_CODE[row.state])}
        if row.state in WAITING_CODES:
            out.update(self._waiting(task, row))
        elif row.state < _core.SUCCEEDED:
            out.update(self._live(task))
        else:
            out.update(self._ended(task, row))
        claim = self.books.attempts.claims.get(task)
        if claim is not None:
            out["claim"] = self.claim(task, claim)
        return out

    # -- it waits

    def _behind(self, task: int, row: TaskRow) -> Iterator[Found]:
        """Another that asks for the same claims, and starts first."""
        first = self.core.claim_before(task) if row.state == _core.QUEUED else None
        if first is not None:
            ident = self.books.id_of(first)
            yield (
                Waiting.CLAIMING,
                f"does not start before {ident}, which asks for the same and waits for its victims",
                {"behind": ident},
            )

    def _waiting(self, task: int, row: TaskRow) -> dict[str, Any]:
        body = self.world.body(task)
        found = sorted(self._reasons(task, row, body), key=lambda reason: PRECEDENCE.index(reason[0]))
        verdict = self.core.verdict(row.shape)
        if len(found) > 1:  # its turn is no reason beside another
            found = [reason for reason in found if reason[0] != Waiting.WINDOW]
        code, sentence, numbers = found[0]
        self._seen.note(("task", task, row.sequence), code, self.world.now_ns)
        return {
            "reason": code,
            "detail": sentence,
            "numbers": numbers,
            "secondary": [{"reason": c, "detail": s, "numbers": n} for c, s, n in found[1:]],
            "nodes": {name: count for name, count in verdict.items() if name in RULED_OUT and count},
            "nodes_that_fit": verdict["fits"],
            "nodes_that_could_ever": verdict["ever"],
            "position": self.core.ahead(task) + 1,
            "order": order_json(self.world, task, row, body),
            "eta_seconds": self._eta_s(task, row),
            "history": self._history(task, row),
        }

    def _history(self, task: int, row: TaskRow) -> list[dict[str, Any]]:
        """Reasons seen so far, of the task and of its shape since it was submitted."""
        sights = self._seen.of(("task", task, row.sequence), ("shape", row.shape), since_ns=row.submitted_ns)
        return [
            {"reason": s.reason, "first_seen": iso(s.first_ns), "last_seen": iso(s.last_ns), "count": s.times}
            for s in sights
        ]

    def _eta_s(self, task: int, row: TaskRow) -> float | None:
        """Only where something is known: the end of a backoff, the start of a reservation. None = nobody knows yet, or its deadline ends it
        before."""
        until_ns = self.books.backoff_until_ns.get(task)
        if until_ns is None:
            start_s = reservations.starts_in_s(self.world, task, row)
        else:
            start_s = max(0.0, (until_ns - self.world.now_ns) / 1e9)
        if start_s is None or self.world.expires_within(task, start_s):
            return None
        return start_s

    def _reasons(self, task: int, row: TaskRow, body: Task) -> Iterator[Found]:
        """Every reason that is true, most telling first; at least one."""
        yield from self._held(task, row, body)
        if row.state == _core.BACKOFF:
            past = self.books.attempts.past.get(task)
            why = past[-1].reason if past else "failed"
            yield Waiting.BACKOFF, f"attempt {row.attempt} ended with: {why}; the next one follows after a pause", {}
        if row.flags & _core.CLAIMING:
            claim = self.books.attempts.claims[task]
            gone = [self.books.id_of(victim) for victim in awaited(self.core, task)]
            waits = f"waits for the end of {', '.join(gone)}" if gone else "its victims are gone"
            yield Waiting.CLAIMING, f"has a claim on {claim.node} and {waits}", self.claim(task, claim)
        yield from self._behind(task, row)
        yield from self._gang(row)
        yield from self._limits(body)
        yield from reservations.reasons(self.world, task, row)
        yield from self._patience(task)
        room = self._room(row, body)
        if room[0] == Waiting.NO_CAPACITY or (row.gang != _core.NONE and not row.flags & _core.CLAIMING):
            yield from lending.owed(self.books, task, row, body)
        yield room

    def _held(self, task: int, row: TaskRow, body: Task) -> Iterator[Found]:
        if row.flags & _core.HELD_OPERATOR:
            yield Waiting.HELD, "held by an operator: `hetsched release` lets it go", {}
        if row.flags & _core.HELD_DEPENDENCY:
            links = [{"id": link.id, "when": link.when, "state": self._state_of(link.id)} for link in body.after]
            waits = [link for link in links if link["state"] not in ("succeeded", None)] or links
            names = ", ".join(f"{link['id']} ({link['state']})" for link in waits)
            yield Waiting.DEPENDENCY, f"waits for {names}", {"after": links}

    def _state_of(self, ident: str) -> str | None:
        task = self.core.find(ident.encode())
        return None if task == _core.NONE else str(STATE_OF_CODE[self.core.task(task).state])

    def _gang(self, row: TaskRow) -> Iterator[Found]:
        gang = self.books.gangs.of(row.gang)
        if gang is None:
            return
        states = [self.core.task(member).state for member in gang.members]
        here = sum(state == _core.QUEUED for state in states)
        present = here + sum(_core.PLACED <= state <= _core.SUCCEEDED for state in states)
        numbers: dict[str, Any] = {"gang": gang.name, "size": gang.size, "min_size": gang.min_size, "present": present}
        if present < gang.min_size:
            sentence = f"gang {gang.name} has {present} of the {gang.min_size} members that must start together"
            yield Waiting.GANG_INCOMPLETE, sentence, numbers
        else:
            now, ever = self.core.gang_room(gang.slot)
            sentence = f"gang {gang.name} needs room for {gang.min_size} members at once"
            if gang.same is not None:
                sentence += f" on one {gang.same}"
                numbers["same"] = gang.same
            sentence += f": {now} of those that wait would fit now, {ever} of all if nobody else was there"
            yield Waiting.GANG_NO_ROOM, sentence, {**numbers, "waiting": here, "fit_now": now, "fit_ever": ever}

    def _limits(self, body: Task) -> Iterator[Found]:
        """Queue limits that the task's start would break, innermost queue first."""
        for over in over_limits(self.books, body):
            numbers = {**msgspec.structs.asdict(over), "holders": holders(self.books, over.queue)}
            yield Waiting.QUEUE_LIMIT, over.sentence, numbers

    def _patience(self, task: int) -> Iterator[Found]:
        """It would leave a rest of a device that is of no use, and waits a while for a better place."""
        until_ns = self.core.waits_until(task)
        if until_ns is not None:
            left_s = max(0.0, (until_ns - self.world.now_ns) / 1e9)
            sentence = (
                f"fits only where the rest of the device would be of use to nobody; takes that after {left_s:g} s more"
            )
            yield Waiting.PATIENCE, sentence, {"seconds": left_s, "patience": self.world.config.policy.patience}

    def _room(self, row: TaskRow, body: Task) -> Found:
        """What the cluster says to the shape."""
        verdict = self.core.verdict(row.shape)
        code = self._room_code(verdict)
        nodes = sum(verdict[name] for name in RULED_OUT) + verdict["fits"]
        apart = together.said(self.books, body)
        if code == Waiting.UNSATISFIABLE:
            return (
                code,
                f"none of {_nodes(nodes)} could take it, even if empty{apart.sentence}",
                {**verdict, **apart.numbers},
            )
        if code == Waiting.WINDOW:
            return code, f"{_nodes(verdict['fits'])} could take it; it waits for its turn", verdict
        parts = [f"{verdict[name]} {words}" for name, words in RULED_OUT.items() if verdict[name] and name != "closed"]
        parts[:0] = self._closed()
        return code, f"of {_nodes(nodes)}: {'; '.join(parts)}{apart.sentence}", {**verdict, **apart.numbers}

    def _closed(self) -> list[str]:
        """How many nodes are closed, by what closed them."""
        states = Counter(node.state for node in self.books.cluster.by_name.values() if not node.is_open)
        return [f"{count} {state}" for state, count in sorted(states.items())]

    @staticmethod
    def _room_code(verdict: dict[str, int]) -> str:
        if verdict["ever"] == 0:
            return Waiting.UNSATISFIABLE
        if verdict["fits"]:
            return Waiting.WINDOW
        if verdict["stranding"]:
            return Waiting.STRANDING
        taken = sum(verdict[name] for name in RULED_OUT if name not in ("closed", "words"))
        return Waiting.NO_CAPACITY if taken else Waiting.NODES_CLOSED

    def pending_by_reason(self) -> dict[str, int]:
        """Waiting tasks per code; queued ones by what the cluster says to their shape, and whether they wait by choice."""
        counts = self.core.counts()
        out = {Waiting.HELD: counts[_core.HELD], Waiting.BACKOFF: counts[_core.BACKOFF]}
        for shape in range(len(self.books.templates.shapes)):
            pending = self.core.shape_pending(shape)
            if pending:
                code = self._room_code(self.core.verdict(shape))
                patient = self.core.shape_patient(shape) if code == Waiting.WINDOW else 0
                if patient:
                    out[Waiting.PATIENCE] = out.get(Waiting.PATIENCE, 0) + patient
                if pending > patient:
                    out[code] = out.get(code, 0) + pending - patient
                self._seen.note(("shape", shape), code, self.world.now_ns)
        return out

    # -- it lives, or has ended

    def _live(self, task: int) -> dict[str, Any]:
        live = self.books.attempts.live[task]
        stopping = self.books.attempts.stopping.get(task)
        preset = self.world.config.policy.preset
        out: dict[str, Any] = {
            "reason": "placed" if stopping is None else stopping.word,
            "detail": f"attempt {live.number} is on {live.node}, chosen by preset {preset} in the {live.lane} lane",
            "node": live.node,
            "devices": [{"id": ident, "share": share} for ident, share in live.devices],
        }
        node, body = self.books.cluster.by_name[live.node], self.world.body(task)
        found = [*lending.borrowed(self.books, body), *lending.lent(self.books, node, body), *self._kept_whole(body)]
        out["secondary"] = [{"reason": c, "detail": s, "numbers": n} for c, s, n in found]
        out["terms"] = self.world.ranking.explain(task)
        run_time = prediction_json(self._run_time(live, task))
        if run_time is not None:
            out["run_time"] = run_time
        if stopping is not None:
            out["detail"] += f"; told to stop: {stopping.word}"
        return out

    def _kept_whole(self, body: Task) -> Iterator[Found]:
        """More is asked by tasks for more whole devices than this one: by price it goes where it leaves nodes to them."""
        for ask in body.resources.devices if self.core.asked >= FIRST_ASKED else ():
            wanted = wanted_together(self.core.apart(self.books.kinds.known(ask.kind)), ask.whole)
            if wanted:
                sentence = (
                    f"{wanted:.0%} of the {ask.kind} asked for are asked for by tasks that need more whole ones together; "
                    "nodes that have them free are kept for those as far as others do"
                )
                yield Beside.KEPT_WHOLE, sentence, {"kind": ask.kind, "wanted_together": wanted}

    def _run_time(self, live: Attempt, task: int) -> Prediction | None:
        """How long it is expected to run where it is."""
        model = self.books.model_of(live)
        return self.books.profiles.predict(self.world.body(task), model)

    def _ended(self, task: int, row: TaskRow) -> dict[str, Any]:
        past = self.books.attempts.ended(task)
        if not past and row.state == _core.SKIPPED:
            links = ", ".join(f"{link.id} ({self._state_of(link.id)})" for link in self.world.body(task).after)
            return {"reason": "never_placed", "detail": f"what it waited for did not end as it asked: {links}"}
        if not past:
            return {"reason": "never_placed", "detail": "it ended without an attempt"}
        last = past[-1]
        return {
            "reason": last.reason or last.outcome,
            "detail": f"attempt {last.number} on {last.node}: {last.outcome}",
        }

    def claim(self, task: int, claim: Claimed) -> dict[str, Any]:
        """A preemptor's claim: where, whose place, at what price, on what proof."""
        return {
            "node": claim.node,
            "devices": [{"id": ident, "share": share} for ident, share in claim.devices],
            "victims": list(claim.victims),
            "price_device_seconds": claim.price_device_seconds,
            "proof": claim.proof,
        }


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
