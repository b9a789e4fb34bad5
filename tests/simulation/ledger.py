"""What the auditor counts along from the events that the daemon let out: who holds which device, which gangs are whole, how many there are.

Judges I4 (shares placed), I5 (gangs) and I10 (counters). Events of a turn are heard only if its daemon lived to let them out; a daemon that
starts says what it found in the journal, and the count goes on from there.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tests.simulation.laws import LIVE, TERMINAL, Violation
from tests.simulation.pace import Pace

OVER = ("requeued", "backoff", *TERMINAL)


def amounts_of(name: str) -> dict[str, int]:
    """Clients write down what they ask for as the task's name: "gpu 0.5 cpu 1" → thousandths."""
    words = name.split()
    return {kind: round(1000 * float(amount)) for kind, amount in zip(words[::2], words[1::2], strict=True)}


class Ledger:
    """`pace`: how long a gang may stay short and a task may take to stop, while everybody hears."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._members: dict[str, set[str]] = defaultdict(set)
        self._gang_of: dict[str, str] = {}
        self._stopping: dict[str, float] = {}  # for how many seconds in which it could
        self._live: dict[str, list[tuple[tuple[str, str], int]]] = {}  # task → [((node, device), share)]
        self._placed_ever: set[str] = set()
        self._placed_seq: dict[str, int] = {}  # of live tasks: number of the event
        self._closed_seq: dict[str, int] = {}  # nodes that fell silent or are gone: likewise
        self.claims: dict[str, str] = {}  # who waits and has devices promised → on which node
        self._ended: dict[str, str] = {}
        self._used: Counter[tuple[str, str]] = Counter()
        self._failed: set[tuple[str, str]] = set()
        self._short_s: dict[str, float] = {}  # gangs that lack members, for how many seconds in which a daemon led
        self._touched: dict[str, set[str]] = defaultdict(set)  # gangs with a member placed in this turn, and who was
        self._changed: set[str] = set()  # gangs with any news in this turn
        self._counted: Counter[str] = Counter()  # since this daemon started
        self._live_at_start = 0

    def wished(self, ids: list[str], body: str) -> None:
        """A client is about to ask for this."""
        said = json.loads(body)
        if isinstance(said, list) and "gang" in said[0]:
            gang = said[0]["gang"]["id"]
            self._members[gang].update(ids)
            self._gang_of.update(dict.fromkeys(ids, gang))

    # ------------------------------------------------------------------ a daemon speaks

    def recovered(
        self,
        rows: Iterable[dict[str, Any]],
        claims: dict[str, str],
        devices: Iterable[dict[str, Any]],
        state_of: Callable[[str], str],
    ) -> None:
        """A daemon has read the journal and knows of these tasks that have not ended; some of them have devices promised."""
        self._live.clear()
        self._stopping.clear()
        self._short_s.clear()
        self._used.clear()
        self._placed_seq.clear()
        self._closed_seq.clear()
        self._counted.clear()
        self.claims = claims
        for row in rows:
            task = row["id"]
            if row["attempt"]:
                self._placed_ever.add(task)
            if row["state"] in LIVE:
                self._hold(task, row["placement"])
            if row["state"] == "stopping":
                self._stopping[task] = 0.0
        for member in self._gang_of.keys() - self._ended.keys():
            if (state := state_of(member)) in TERMINAL:
                self._ended[member] = state
        self._live_at_start = len(self._live)
        self._failed = {(row["node"], row["id"]) for row in devices if row["health"] == "failed"}

    def event(self, event: Any) -> None:
        task, name = event.task, event.event
        if name == "placed":
            self._place(task, event.data)
            self._placed_seq[task] = event.seq
        elif name in OVER:
            self._free(task)
            if name in TERMINAL:
                self._ended[task] = name
        elif name in ("node_silent", "node_down"):
            self._closed_seq[event.data["node"]] = event.seq
        elif name == "device":
            where = event.data["node"], event.data["device"]
            (self._failed.add if event.data["health"] == "failed" else self._failed.discard)(where)
        elif name in ("stopping", "preempted"):
            self._stopping[task] = 0.0
        elif name == "queued" and not event.attempt:
            self._counted["queued"] += 1
        elif name == "claimed":
            self.claims[task] = event.data["node"]
        if name == "unclaimed" or name in TERMINAL:
            self.claims.pop(task, None)
        gang = self._gang_of.get(task)
        if gang is not None:
            self._changed.add(gang)

    def turn_over(self) -> None:
        """All events of one turn have been heard."""
        for gang in self._changed:
            self._judge_gang(gang)
        self._changed.clear()
        self._touched.clear()

    def begun(self, task: str) -> None:
        """A process of the task begins."""
        gang = self._gang_of.get(task)
        if gang is None:
            return
        never = self._members[gang] - self._placed_ever - self._ended.keys()
        if never:
            raise Violation("I5", f"{task} begins while {sorted(never)} of its gang have no place yet")

    def time_passed(self, length_s: float, obeying: set[str]) -> None:
        """A daemon led all the while and what it decided was let out; these nodes could hear it and do it."""
        for gang in self._short_s:
            self._short_s[gang] += length_s
            if self._short_s[gang] > self._pace.repair_s:
                raise Violation("I5", f"gang {gang} has been short for {self._short_s[gang]:.0f} s")
        for task in self._stopping:
            held = self._live.get(task)
            if held and held[0][0][0] in obeying:
                self._stopping[task] += length_s
                if self._stopping[task] > self._pace.stop_s:
                    raise Violation("I12", f"{task} has been stopping for {self._stopping[task]:.0f} s")

    def closed(self, node: str) -> None:
        """It is silent or gone, and was so since it was last said to be."""
        since = self._closed_seq.get(node)
        for task, held in self._live.items():
            if since is not None and held and held[0][0][0] == node and self._placed_seq.get(task, 0) > since:
                raise Violation("I4", f"{task} was placed on {node}, which is silent or gone")
        promised = [task for task, where in self.claims.items() if where == node]
        if promised:
            raise Violation("I12", f"{promised} wait for devices of {node}, which gets nothing new")

    # ------------------------------------------------------------------ counters

    def judge_counters(self, told: dict[str, Any]) -> None:
        """`told`: what the daemon says at one moment at which all that it decided is durable and heard here."""
        rows = told["rows"]
        by_state, by_queue = Counter[str](), defaultdict(Counter[str])
        for row in rows:
            by_state[row["state"]] += 1
            by_queue[row["queue"]]["running" if row["state"] in LIVE else row["state"]] += 1
        for state, count in told["tasks"].items():
            if state not in TERMINAL and count != by_state[state]:
                raise Violation("I10", f"{count} tasks are counted as {state}, {by_state[state]} are listed")
        ended = sum(told["tasks"][state] for state in TERMINAL)
        if ended < len(self._ended):
            raise Violation("I10", f"{ended} tasks are counted as ended, {len(self._ended)} have ended")
        live = {row["id"] for row in rows if row["state"] in LIVE}
        if live != self._live.keys():
            raise Violation("I10", f"live by the list and by events differ: {sorted(live ^ self._live.keys())}")
        self._judge_queues(told["queues"], by_queue, rows)
        for row in told["devices"]:
            share = self._used[row["node"], row["id"]]
            if row["share_used"] != share:
                raise Violation("I10", f"{row['node']} {row['id']} counts {row['share_used']}, its tasks hold {share}")
        if told["accepted"] != self._counted["queued"]:
            raise Violation("I10", f"{told['accepted']} accepted are counted, {self._counted['queued']} were queued")
        placed, over = self._live_at_start + self._counted["placed"], told["attempts"]
        if placed != len(live) + over:
            raise Violation("I10", f"{placed} attempts began, {len(live)} live and {over} are counted as over")

    def _judge_queues(
        self, queues: list[dict[str, Any]], listed: dict[str, Counter[str]], rows: list[dict[str, Any]]
    ) -> None:
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            if row["state"] in LIVE or row["id"] in self.claims:
                used[row["queue"]].update(amounts_of(row["name"]))
        for queue in queues:
            name = queue["name"]
            for word, state in (("waiting", "queued"), ("running", "running")):
                if queue[word] != listed[name][state]:
                    raise Violation(
                        "I10", f"queue {name} counts {queue[word]} {word}, {listed[name][state]} are listed"
                    )
            for kind in ("gpu", "cpu"):
                counted = round(1000 * queue["used"].get(kind, 0))
                if counted != used[name][kind]:
                    raise Violation("I10", f"queue {name} uses {counted} milli of {kind}, its tasks {used[name][kind]}")

    # ------------------------------------------------------------------ inside

    def _place(self, task: str, data: dict[str, Any]) -> None:
        self._counted["placed"] += 1
        self.claims.pop(task, None)
        self._placed_ever.add(task)
        self._hold(task, data)
        for (node, device), _ in self._live[task]:
            if (node, device) in self._failed:
                raise Violation("I4", f"{task} is placed on {device} of {node}, which has failed")
            if self._used[node, device] > 1000:
                raise Violation(
                    "I4", f"{task} is placed on {device} of {node}: {self._used[node, device]} of 1000 given"
                )
        gang = self._gang_of.get(task)
        if gang is not None:
            self._touched[gang].add(task)

    def _hold(self, task: str, where: dict[str, Any]) -> None:
        self._free(task)
        held = [((where["node"], one["id"]), one["share"]) for one in where["devices"]]
        self._live[task] = held
        for device, share in held:
            self._used[device] += share

    def _free(self, task: str) -> None:
        self._stopping.pop(task, None)
        self._placed_seq.pop(task, None)
        for device, share in self._live.pop(task, ()):
            self._used[device] -= share

    def _judge_gang(self, gang: str) -> None:
        members = self._members[gang]
        live = [member for member in members if member in self._live]
        done = [member for member in members if self._ended.get(member) == "succeeded"]
        gone = [member for member in members if self._ended.get(member, "succeeded") != "succeeded"]
        going_on = [member for member in members if member not in self._ended and member not in self._stopping]
        if gone and going_on:
            raise Violation("I5", f"{gone} of {gang} have ended, and {going_on} go on")
        if not live or self._stopping.keys() >= set(live) or len(live) + len(done) == len(members):
            self._short_s.pop(gang, None)
        elif gang in self._touched and members - self._touched[gang] - set(live) - set(done):
            raise Violation(
                "I5", f"a member of {gang} is placed and only {len(live) + len(done)} of {len(members)} are"
            )
        else:
            self._short_s.setdefault(gang, 0.0)
