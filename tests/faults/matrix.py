"""The matrix of real faults: so many of each on real processes, added up over as many sittings as one likes.

    python -m tests.faults                               all that is missing, then the table
    python -m tests.faults --only kill_daemon --runs 300
    python -m tests.faults --table                       what was run so far

Every part is run in slices (one cluster each, killed and frozen again and again), and each slice's outcome is a line of JSON in
`faults.jsonl` (`--to`): whoever is interrupted goes on where he was. A slice that is not clean is kept, told, and makes the exit status 1.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import loaded
from tests.faults import several as two_daemons
from tests.faults.test_failover import changes, freeze, kill
from tests.faults.trial import of, trial
from tests.store.failing_over import failovers, regress
from tests.store.sentinels import Watched

Outcome = dict[str, Any]


class Part(NamedTuple):
    """`wanted` runs in slices of `slice`; `run(directory, runs)` does so many. `what`: for the table."""

    what: str
    wanted: int
    slice: int
    run: Callable[[Path, int], Outcome]


def _storm(fault: str, pause_s: float, per_strike: tuple[int, int] = (3, 8)) -> Callable[[Path, int], Outcome]:
    def run(directory: Path, runs: int) -> Outcome:
        verdict = trial(directory, of({fault: runs}, per_strike, pause_s))
        wrong = [*verdict.lost, *verdict.double, *verdict.drift, *verdict.other]
        return {
            "seed": verdict.seed,
            "tasks": verdict.tasks,
            "lost": len(verdict.lost),
            "double": len(verdict.double),
            "drift": len(verdict.drift),
            "other": len(verdict.other),
            "ready_s": [round(one, 3) for one in verdict.ready_s],
            "unsynced_bytes": verdict.unsynced_bytes,
            "said": wrong[:5],
        }

    return run


def _loaded(directory: Path, runs: int) -> Outcome:
    return loaded.deaths(directory, runs, int.from_bytes(os.urandom(3)))


def _leaders(act: Callable[[Any], None] | None) -> Callable[[Path, int], Outcome]:
    """Changes of leader; None = by command."""

    def run(directory: Path, runs: int) -> Outcome:
        with two_daemons.several(directory) as found:
            if act is not None:
                with two_daemons.agent_of(found):
                    seen = changes(found, act, runs)
            else:
                seen = []
                for _ in range(runs):
                    seen.append(found.change(lambda leader: found.client.hand_over() and None))
                    time.sleep(0.1)
            lost = found.settle()
            assert found.clients is not None
            failed = found.clients.failed
            late = [one for one in seen if one > (5.0 if act is not None else 1.0)]
            return {
                "tasks": len(found.clients.acknowledged),
                "lost": len(lost),
                "other": len(failed) + len(late),
                "ready_s": [round(one, 3) for one in seen],
                "said": [*lost[:3], *failed[:3], *(f"took {one:.2f} s" for one in late[:3])],
            }

    return run


def _sentinels(directory: Path, runs: int) -> Outcome:
    with_replicas = Watched(directory)
    try:
        with_replicas.start()
        kept = asyncio.run(failovers(with_replicas, directory, runs))
    finally:
        with_replicas.close()
    return {"tasks": kept}  # it asserts that nothing is lost


def _regress(directory: Path, runs: int) -> Outcome:
    for number in range(runs):
        place = directory / str(number)
        place.mkdir()
        watched = Watched(place)
        try:
            watched.start()
            asyncio.run(regress(watched, place))
        finally:
            watched.close()
    return {}


PARTS: dict[str, Part] = {
    "kill_daemon": Part("daemon killed (`-9`), now and then once more while it starts", 300, 50, _storm("kill_daemon", 0.5)),
    "kill_server": Part("journal server killed", 300, 50, _storm("kill_server", 1.5)),
    "kill_agent": Part("agent killed", 300, 50, _storm("kill_agent", 0.5)),
    "kill_daemon_and_server": Part("daemon and journal server killed together", 100, 50, _storm("kill_daemon_and_server", 0.5)),
    "kill_shim": Part("shim killed", 100, 50, _storm("kill_shim", 0.5)),
    "freeze_daemon": Part("daemon frozen (SIGSTOP) for up to 3 s", 50, 25, _storm("freeze_daemon", 0.3)),
    "freeze_server": Part("journal server frozen", 50, 25, _storm("freeze_server", 0.3)),
    "freeze_agent": Part("agent frozen", 50, 25, _storm("freeze_agent", 0.3)),
    "freeze_daemon_long": Part("daemon frozen for longer than a lease", 10, 5, _storm("freeze_daemon_long", 0.5, (10, 20))),
    "freeze_agent_long": Part("agent frozen for longer than a lease", 10, 5, _storm("freeze_agent_long", 0.5, (10, 20))),
    "cut": Part("an agent cut off, both ways", 40, 20, _storm("cut", 0.3)),
    "cut_towards_daemon": Part("likewise, towards the daemon only", 25, 25, _storm("cut_towards_daemon", 0.3)),
    "cut_towards_agent": Part("likewise, towards the agent only", 25, 25, _storm("cut_towards_agent", 0.3)),
    "cut_long": Part("likewise, for longer than a lease", 10, 5, _storm("cut_long", 0.5, (10, 20))),
    "fill_disk": Part("disk of daemon and journal full", 20, 20, _storm("fill_disk", 0.5)),
    "break_disk": Part("disk fails to sync", 20, 20, _storm("break_disk", 0.5)),
    "slow_disk": Part("disk takes 50 to 400 ms to sync", 20, 20, _storm("slow_disk", 0.5)),
    "cut_power": Part("power cut: daemon and server die, and any of what was not synced is gone", 100, 50, _storm("cut_power", 0.5)),
    "kill_daemon_loaded": Part("1,000,000 tasks wait: daemon killed, daemon and server killed, power cut, in turn", 60, 30, _loaded),
    "jump_clock": Part("wall clocks of daemon, server or both jump by up to a day, and back", 20, 20, _storm("jump_clock", 0.5)),
    "fill_memory": Part("store's server at its `maxmemory`", 20, 20, _storm("fill_memory", 0.5)),
    "kill_leader": Part("leader killed, a standby follows", 100, 25, _leaders(kill)),
    "freeze_leader": Part("leader frozen, woken when the next one leads", 50, 25, _leaders(freeze)),
    "hand_over": Part("hand-over by command", 100, 50, _leaders(None)),
    "kill_primary": Part("store's primary killed, `replicated`", 30, 10, _sentinels),
    "lose_frames": Part("store's primary killed while its replicas lack frames, `fsync`: refused by name", 30, 10, _regress),
}  # fmt: skip


def run(name: str, runs: int, to: Path) -> bool:
    """So many more of one part, slice by slice; whether all were clean."""
    clean, part = True, PARTS[name]
    while runs > 0:
        some = min(runs, part.slice)
        directory = Path(tempfile.mkdtemp(prefix="hetsched-faults-"))
        began_s = time.monotonic()
        try:
            outcome = part.run(directory, some)
        except Exception as error:
            outcome = {"other": 1, "said": [f"{type(error).__name__}: {str(error)[:2000]}"]}
        took_s = time.monotonic() - began_s
        line = {
            "part": name,
            "runs": some,
            "at": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "took_s": round(took_s, 1),
            **outcome,
        }
        with to.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if is_clean(line):
            shutil.rmtree(directory, ignore_errors=True)
        else:
            clean = False
            print(f"{name}: {line['said']}\n  kept: {directory}", flush=True)
        print(f"{name}: {some} runs in {took_s:.0f} s, {'clean' if is_clean(line) else 'NOT CLEAN'}", flush=True)
        runs -= some
    return clean


def is_clean(line: Outcome) -> bool:
    return not any(line.get(word) for word in ("lost", "double", "drift", "other"))


def read(path: Path) -> list[Outcome]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(lines: list[Outcome]) -> str:
    """As Markdown."""
    rows = [
        "| fault | runs | of | tasks | lost | twice at once | ledger off | else | ready again: p50, p99 s | to repeat |",
        "|---" * 10 + "|",
    ]
    for name, part in PARTS.items():
        mine = [line for line in lines if line["part"] == name]
        runs, tasks, lost, double, drift, other = (
            sum(line.get(word, 0) for line in mine) for word in ("runs", "tasks", "lost", "double", "drift", "other")
        )
        ready = sorted(one for line in mine for one in line.get("ready_s", ()))
        told = f"{_percentile(ready, 50):.2f}, {_percentile(ready, 99):.2f}" if ready else ""
        again = f"`python -m tests.faults --only {name} --runs {part.wanted}`"
        rows.append(
            f"| {part.what} | {runs} | {part.wanted} | {tasks:,} | {lost} | {double} | {drift} | {other} | {told} | {again} |"
        )
    return "\n".join(rows)


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
