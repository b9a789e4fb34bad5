"""The course of the demo: what arrives when, what is killed when. One thread submits, the caller's thread acts.

Submissions go on while the daemon is dead: they are repeated with the same key until it answers, and must make each task once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hetsched.client import Client
from hetsched.demo.board import Board
from hetsched.demo.processes import PROFILES, DemoFault, Processes
from hetsched.demo.workload import Workload, is_fraction, processes_in

_TICK_S = 0.5
_END_S = 120.0  # a machine ten times slower than one needs this for what is left then
_VICTIM_NODE = "h100"


class Script:
    """`ids`: every acknowledged task; `processes`: those that are real ones; `kinds`: how many of them are of a kind
    worth naming; `urgent`: what critical tasks were answered; `killed`: which programs were."""

    def __init__(self, client: Client, processes: Processes, board: Board, workload: Workload, seconds: float) -> None:
        self._client, self._programs, self._board, self._workload = client, processes, board, workload
        self._seconds = seconds
        self.ids: list[str] = []
        self.processes: list[str] = []
        self.urgent: list[dict[str, Any]] = []
        self.kinds = Counter[str]()
        self.killed: list[str] = []
        self._lock = threading.Lock()
        self._fault: BaseException | None = None

    def play(self, *, leases: int, processes: int) -> None:
        """All of it, until every task has ended."""
        stream = threading.Thread(target=self._guarded, args=(self._stream, leases, processes), daemon=True)
        self._open()
        stream.start()
        for share, act in ((0.25, self._preempt), (0.5, self._lose_agent), (0.7, self._lose_daemon)):
            self._until(share * self._seconds)
            act()
        self._say("work arrives", "the rest of the work arrives")
        self._until(self._seconds)
        while stream.is_alive():
            self._look()
            stream.join(0.2)
        self._look()
        self._finish()

    # ------------------------------------------------------------------ acts

    def _open(self) -> None:
        self._say("work arrives", "an array of 500, a gang, a chain, four troubled tasks; then leases and processes")
        self._submit(self._workload.array(500), lease_ids=[f"sweep-{i}" for i in range(500)])
        self._submit(self._workload.gang(), process_ids=[f"gang-{i}" for i in range(4)])
        chain = self._workload.chain()
        self._submit(chain)
        self._submit(self._workload.troubled())
        self.kinds.update({"in an array": 500, "in a gang": 4, "in a chain": len(chain)})
        self._client.cancel("changed-my-mind")

    def _preempt(self) -> None:
        self._say("preemption", "background tasks fill the GPUs, then three critical tasks want two each")
        self._submit(self._workload.fillers(26, seconds=5))
        time.sleep(1.0)
        for number in range(3):
            began = time.monotonic()
            body = self._workload.urgent(number)
            answer = self._client.submit(body, wait_s=20)
            self._note([body["id"]], [body["id"]])
            self.urgent.append(answer)
            place = answer.get("placement") or {}
            devices = ", ".join(device["id"] for device in place.get("devices", ()))
            self._board.tell(
                f"critical {body['id']} has {devices or 'nothing yet'} on {place.get('node', '-')} "
                f"after {time.monotonic() - began:.2f} s"
            )

    def _lose_agent(self) -> None:
        pid = self._programs.kill_agent(_VICTIM_NODE)
        self.killed.append(f"the agent of {_VICTIM_NODE}")
        self._say("an agent is dead", f"agent of {_VICTIM_NODE} killed with -9 (pid {pid}); its processes go on")
        self._until(self._board.elapsed_s + 3)
        self._programs.start_agent(next(profile for profile in PROFILES if profile.name == _VICTIM_NODE))
        self._say("work arrives", f"agent of {_VICTIM_NODE} started again; it adopts what runs there")

    def _lose_daemon(self) -> None:
        pid = self._programs.kill_daemon()
        self.killed.append("the daemon")
        self._say("the daemon is dead", f"daemon killed with -9 (pid {pid}), and its store with it; submissions go on")
        time.sleep(1.0)
        began = time.monotonic()
        self._programs.start_daemon()
        self._say("work arrives", f"daemon serves again after {time.monotonic() - began:.2f} s, from its journal")

    def _finish(self) -> None:
        self._say("finishing", "all work has arrived; the last tasks end")
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            counts = self._client.cluster()["tasks"]
            if not any(counts[state] for state in _ALIVE):
                return
            self._look()
            time.sleep(0.2)
        raise DemoFault(f"{_END_S:g} s after the last arrival some tasks have not ended: {counts}")

    # ------------------------------------------------------------------ arrivals

    def _stream(self, leases: int, processes: int) -> None:
        ticks = max(1, round(self._seconds / _TICK_S))
        for tick in range(ticks):
            bodies = self._workload.stream(_part(leases, tick, ticks))
            bodies += self._workload.processes(_part(processes, tick, ticks))
            self._until((tick + 1) * _TICK_S, look=False)
            if bodies:
                self._submit(bodies)

    def _submit(self, body: Any, *, lease_ids: Iterable[str] = (), process_ids: Iterable[str] = ()) -> None:
        """Remembers the ids only once the daemon has acknowledged them."""
        answer = self._client.submit(body)
        if answer["rejected"]:
            raise DemoFault(f"refused: {answer['rejected'][0]}")
        bodies = body if isinstance(body, list) else []
        ids = [task["id"] for task in bodies] or [*lease_ids, *process_ids]
        self._note(ids, [task["id"] for task in processes_in(bodies)] or list(process_ids))
        self.kinds["on parts of devices"] += sum(map(is_fraction, bodies))

    def _note(self, ids: list[str], processes: list[str]) -> None:
        with self._lock:
            self.ids += ids
            self.processes += processes
            self._board.submitted = len(self.ids)

    # ------------------------------------------------------------------

    def _guarded(self, run: Callable[..., None], *args: Any) -> None:
        try:
            run(*args)
        except BaseException as error:
            self._fault = error

    def _look(self) -> None:
        """Raises what went wrong elsewhere."""
        if self._fault is not None:
            raise self._fault
        self._programs.check()

    def _until(self, at_s: float, *, look: bool = True) -> None:
        while (left_s := at_s - self._board.elapsed_s) > 0:
            if look:
                self._look()
            time.sleep(min(left_s, 0.2))

    def _say(self, act: str, text: str) -> None:
        self._board.act = act
        self._board.tell(text)


_ALIVE = ("queued", "placed", "running", "stopping", "backoff", "held")


def _part(total: int, tick: int, ticks: int) -> int:
    """The share of `total` that falls on this tick; all of them together are `total`."""
    return total * (tick + 1) // ticks - total * tick // ticks
