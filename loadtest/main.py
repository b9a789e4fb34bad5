"""One run, from the options to the exit code: daemon, fleet, observer, generators, report.

Promises: bounded by duration + drain + the start-up limits; every process that was started is gone at the end.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psutil

from loadtest import page, report, server, tally
from loadtest.board import Board, capacity_for, room_for_boards
from loadtest.fleet import FleetPlan, run_fleet
from loadtest.generator import PROCESS, Plan, generate
from loadtest.mix import Mix, MixError, mix_path, read_mix
from loadtest.nodes import capacity_of, fleet_of
from loadtest.observer import Watch, observe
from loadtest.options import Options, parse
from loadtest.search import search
from loadtest.tally import Figures
from loadtest.targets import TargetError, judge, read_targets
from loadtest.together import Load, Meeting, MeetingError, Part

READY_S = 60.0
LEAD_S = 1.0  # generators start together this long after they were told
SAMPLE_S = 1.0

spawn = multiprocessing.get_context("spawn")


def main(argv: list[str]) -> int:
    """0: done, all targets reached · 1: a target missed, or the fleet saw a broken promise · 2: misuse · 5: no daemon, or a machine missing."""
    options = parse(argv)
    try:
        targets = read_targets(options.targets) if options.targets else []
        if not options.join:
            fault = _unfit(read_mix(options.mix), options.mode)
            if fault:
                raise MixError(fault)
    except (TargetError, MixError) as error:
        print(f"hetsched load: {error}", file=sys.stderr)
        return 2
    try:
        if options.join:
            return _join(options)
        figures = search(options, targets, _measure) if options.search else _measure(options)
    except (server.ServerError, MeetingError) as error:
        print(f"hetsched load: {error}", file=sys.stderr)
        return 5
    judged = judge(targets, figures)
    figures["targets"] = [
        {**each.target._asdict(), "measured": each.measured, "reached": each.reached} for each in judged
    ]
    text = json.dumps(figures, indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    if options.html:
        options.html.write_text(page.page(figures))
    print(text if options.json else "\n".join(filter(None, (report.table(figures), report.verdicts(judged)))))
    fleet = figures.get("fleet", {})
    broken = fleet.get("started_twice", 0) or fleet.get("overcommitted", 0)
    return 1 if broken or not all(each.reached for each in judged) else 0


def _measure(options: Options) -> Figures:
    """One run, from here."""
    with _daemon(options) as daemon, _boards(options.rps * options.duration) as directory:
        load = _load(options, daemon.url)
        meeting = None
        if load.machines > 1:
            assert options.store is not None
            meeting = Meeting(options.store)
            meeting.lead(load)
        run = Run(load, 0, daemon, Path(directory))
        parts = [run.go(meeting)]
        if meeting:
            parts += meeting.parts(load, load.drain + load.timeout + READY_S)
    figures: Figures = {"run": _about(options)} | tally.figures([part.tally for part in parts])
    figures["fragmentation"] = report.fragmentation(run.samples)
    if load.nodes:
        figures["load"] = report.load_on(capacity_of(fleet_of(load.nodes, load.run)), read_mix(options.mix), load.rps)
        figures["fleet"] = {name: sum(part.fleet[name] for part in parts if part.fleet) for name in parts[0].fleet}
    tasks = max(figures["achieved"]["acknowledged"], 1)
    if run.cost:
        figures["daemon"] = {
            "cpu_s": run.cost["cpu_s"],
            "rss_bytes": run.cost["rss_bytes"],
            "cpu_us_per_task": run.cost["cpu_s"] * 1e6 / tasks,
            "memory": report.course([cost["rss_bytes"] - cost["journal_rss_bytes"] for cost in run.memory]),
            "journal_memory": report.course([cost["journal_rss_bytes"] for cost in run.memory]),
        }
        run.spent_s["daemon"] = run.cost["cpu_s"] - run.cost["journal_cpu_s"]
        run.spent_s["journal"] = run.cost["journal_cpu_s"]
    figures["cpu_us_per_task"] = {name: spent_s * 1e6 / tasks for name, spent_s in sorted(run.spent_s.items())}
    return figures


def _boards(tasks: float) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hs-board-", dir=room_for_boards(round(tasks)))


def _join(options: Options) -> int:
    """One machine of several; what it measured is in the report of the one that leads."""
    assert options.store is not None
    meeting = Meeting(options.store)
    print("waiting for a machine that leads …", file=sys.stderr)
    load, number = meeting.join()
    options.url = options.url or load.url
    with _daemon(options) as daemon, _boards(load.rps * load.duration / load.machines) as directory:
        part = Run(load, number, daemon, Path(directory)).go(meeting)
        meeting.tell(load, part)
    print(
        f"machine {number} of {load.machines}: {sum(each.offered for each in part.tally.slices):,} tasks offered",
        file=sys.stderr,
    )
    return 0


def _load(options: Options, url: str) -> Load:
    mix = mix_path(options.mix).read_text()
    shared = {name: getattr(options, name) for name in Load.__struct_fields__ if hasattr(options, name)}
    return Load(**{**shared, "run": f"load{secrets.token_hex(4)}", "url": url, "mix": mix})


def _unfit(mix: Mix, mode: str) -> str:
    """Why the mix is not for this mode; empty = it is."""
    if mix.runs_processes and mode != PROCESS:
        return "this mix has a `command`: it is for --mode process"
    if mode == PROCESS and not mix.runs_processes:
        return "--mode process needs a mix whose tasks have a `command` (--mix process)"
    return ""


def _about(options: Options) -> dict[str, Any]:
    hidden = {"token", "agent_token", "store"}
    shown = {name: value for name, value in vars(options).items() if name not in hidden}
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.release()}
    return {"options": {name: str(v) if isinstance(v, Path) else v for name, v in shown.items()}, "machine": machine}


class Run:
    """The processes of one machine's part of a run and what they leave behind."""

    def __init__(self, load: Load, number: int, daemon: server.Server, directory: Path) -> None:
        self._load, self._number, self._daemon, self._directory = load, number, daemon, directory
        self._prefix = f"{load.run}m{number}"
        self._rate_per_s = load.rps / load.machines / load.generators
        self._nodes = load.nodes // load.machines + (number < load.nodes % load.machines)
        self._capacity = capacity_for(rate_per_s=self._rate_per_s, duration_s=load.duration)
        self._boards = [Board(directory, number, self._capacity) for number in range(load.generators)]
        self._mix = directory / "mix.toml"
        self._mix.write_text(load.mix)
        self.samples: list[dict[str, float]] = []
        self.memory: list[dict[str, float]] = []  # what the own daemon and its journal server had cost, as often
        self.cost: dict[str, float] = {}
        self.spent_s: dict[str, float] = {}  # processor time, by what it was spent for

    def go(self, meeting: Meeting | None) -> Part:
        """The whole run; `meeting`: with others, who all begin at once."""
        load = self._load
        with contextlib.ExitStack() as stack:
            if load.mode == PROCESS and self._daemon.pid is not None:
                stack.enter_context(server.agent(self._daemon))
            elif self._nodes:
                stack.enter_context(self._beside("fleet", run_fleet, self._fleet_plan(), f"{self._nodes} nodes"))
            stack.enter_context(self._beside("observer", observe, self._watch(), "the event stream"))
            before = self._daemon.cost()
            start_ns, end_ns = self._generate(meeting)
            self._drain()
            now_ns = time.monotonic_ns()
            after = self._daemon.cost()
        if before and after:
            self.cost = {name: after[name] - before[name] for name in ("cpu_s", "journal_cpu_s")}
            self.cost["rss_bytes"] = after["rss_bytes"]
        results = [json.loads((self._directory / f"{number}.json").read_text()) for number in range(load.generators)]
        self.spent_s["generators"] = sum(result["cpu_s"] for result in results)
        mine = tally.tally_of(
            self._boards, results, read_mix(str(self._mix)), start_ns=start_ns, end_ns=end_ns, now_ns=now_ns
        )
        fleet = self._directory / "fleet.json"
        counts = json.loads(fleet.read_text()) if fleet.exists() else {}
        return Part(mine, {name: count for name, count in counts.items() if isinstance(count, int)})

    def _generate(self, meeting: Meeting | None) -> tuple[int, int]:
        """Begun once all generators are there, for what they are late counts as waiting. Returns when they began and when they ended."""
        lines, processes = [], []
        for number in range(self._load.generators):
            ours, theirs = spawn.Pipe()
            lines.append(ours)
            processes.append(self._process(generate, self._plan(number), theirs))
        for process in processes:
            process.start()
        try:
            if not all(line.poll(READY_S) for line in lines) or any(
                process.exitcode is not None for process in processes
            ):
                raise server.ServerError(f"{len(processes)} generators: not ready within {READY_S:.0f} s")
            start_ns = meeting.start(self._load, self._number) if meeting else time.monotonic_ns() + int(LEAD_S * 1e9)
            end_ns = start_ns + int(self._load.duration * 1e9)
            for line in lines:
                line.send((start_ns, end_ns))
            limit_ns = end_ns + int((self._load.timeout + READY_S) * 1e9)
            while any(process.is_alive() for process in processes) and time.monotonic_ns() < limit_ns:
                self._sample()
                time.sleep(SAMPLE_S)
        finally:
            _end(processes)
        failed = [process.exitcode for process in processes if process.exitcode != 0]
        if failed:
            raise server.ServerError(f"{len(failed)} of {len(processes)} generators broke off; their errors are above")
        return start_ns, end_ns

    def _drain(self) -> None:
        """Until every acknowledged task is known to be placed, and ended where that is measured; at most `--drain` seconds."""
        deadline = time.monotonic() + self._load.drain
        while time.monotonic() < deadline:
            began_s = time.monotonic()
            if all(board.is_settled(ends=self._load.mode == PROCESS) for board in self._boards):
                return
            time.sleep(max(0.1, 3 * (time.monotonic() - began_s)))  # looking must not become the load

    def _sample(self) -> None:
        if cost := self._daemon.cost():
            self.memory.append(cost)
        with contextlib.suppress(server.ServerError):  # a daemon under load may be late; the next second asks again
            fragmentation = self._daemon.get("/v1/cluster")["fragmentation"]
            self.samples.append({kind: entry["ratio"] for kind, entry in fragmentation.items()})

    @contextlib.contextmanager
    def _beside(self, name: str, target: Any, plan: Any, what: str) -> Iterator[None]:
        """A process beside the run: ready before it begins, told to stop after it."""
        ready, stop = spawn.Event(), spawn.Event()
        process = self._process(target, plan, ready, stop)
        process.start()
        try:
            deadline = time.monotonic() + READY_S
            while not ready.wait(0.1):
                if process.exitcode is not None or time.monotonic() > deadline:
                    raise server.ServerError(f"{what}: not ready within {READY_S:.0f} s (is the token right?)")
            before_s = _cpu_s(process)
            yield
            self.spent_s[name] = _cpu_s(process) - before_s
        finally:
            stop.set()
            _end([process])

    def _process(self, target: Callable[..., None], *args: Any) -> SpawnProcess:
        return spawn.Process(target=_give_way, args=(self._load.nice, target, *args), daemon=True)

    def _plan(self, number: int) -> Plan:
        load, daemon = self._load, self._daemon
        return Plan(
            number=number,
            directory=self._directory,
            capacity=self._capacity,
            host=daemon.host,
            port=daemon.port,
            token=daemon.token,
            run=self._prefix,
            mode=load.mode,
            mix=str(self._mix),
            rate_per_s=self._rate_per_s,
            start_ns=0,
            end_ns=0,
            tick_s=load.tick,
            batch=load.batch,
            connections=load.connections,
            timeout_s=load.timeout,
            seed=load.seed + 7919 * self._number,
        )

    def _fleet_plan(self) -> FleetPlan:
        daemon = self._daemon
        return FleetPlan(daemon.url, daemon.agent_token, self._prefix, self._nodes, self._directory / "fleet.json")

    def _watch(self) -> Watch:
        load, daemon = self._load, self._daemon
        return Watch(
            daemon.host,
            daemon.port,
            daemon.token,
            self._prefix,
            self._directory,
            load.generators,
            self._capacity,
            ends=load.mode == PROCESS,
        )


@contextlib.contextmanager
def _daemon(options: Options) -> Iterator[server.Server]:
    if options.url is None:
        with server.own(store=options.store, sets=options.sets) as daemon:
            yield daemon
        return
    tokens = {"token": options.token, "agent-token": options.agent_token}
    for name, given in tokens.items():
        if given is None and options.data is not None:
            with contextlib.suppress(OSError):
                tokens[name] = (options.data / name).read_text().strip()
    if tokens["token"] is None or (options.nodes and tokens["agent-token"] is None):
        raise server.ServerError("--url needs the tokens: --data DIR of the daemon, or --token and --agent-token")
    yield server.existing(
        options.url,
        token=tokens["token"],
        agent_token=tokens["agent-token"] or "",
        foreign_allowed=options.i_own_this_host,
    )


def _cpu_s(process: SpawnProcess) -> float:
    """Processor time so far; 0 if it is gone."""
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(process.pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _give_way(nice: int, target: Callable[..., None], *args: Any) -> None:
    """What stands for other machines takes the processor when the daemon and its journal server do not want it."""
    os.nice(nice)
    target(*args)


def _end(processes: list[SpawnProcess]) -> None:
    for process in processes:
        process.join(3)
        if process.is_alive():
            process.terminate()
            process.join(3)
