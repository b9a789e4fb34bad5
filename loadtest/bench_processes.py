"""How many processes a second does one machine run, from an array to all ends known, against a bare loop of posix_spawn and wait?

    python loadtest/bench_processes.py [--tasks 1000] [--rounds 5] [--at-once 100] [--singles 20] [--running 100]

Daemon, journal server (every answer is on disk) and agent share this machine's cores with the processes; so does the bare loop, one for
each core, before every round. Processor time a task, by who spends it, is the figure that a busy machine moves least. Also: one task on
the idle system, from its submission to its end known, beside the disk's fsync; and the memory of a task's shim. The last figures are in
README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from loadtest import server

TRUE = "/bin/true"
HYPERQUEUE_PER_S = 355.0
"""Processes a second of HyperQueue 0.27 on a machine of this kind, measured once; not in this run."""

OWN = "the processes themselves"


class Bare(NamedTuple):
    """The limit: spawns a second with all cores, processor time of one."""

    per_s: float
    cpu_us: float


def built(directory: Path) -> Path:
    """The bare loop, compiled."""
    program = directory / "bare_spawn"
    subprocess.run(["cc", "-O2", "-o", program, Path(__file__).with_name("bare_spawn.c")], check=True)
    return program


def bare(program: Path, count: int) -> Bare:
    cores = len(os.sched_getaffinity(0))
    said = subprocess.run([program, str(count // cores), str(cores)], check=True, capture_output=True, text=True)
    return Bare(*map(float, said.stdout.split()))


def ask(daemon: server.Server, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(daemon.url + path, data, headers), timeout=60) as answer:
        return json.load(answer)


def spent_us(daemon: server.Server, agent: int) -> Counter[str]:
    """Processor time so far by who spent it."""
    spent: Counter[str] = Counter()
    in_ticks = 0
    assert daemon.pid is not None
    for name, root in (("daemon", daemon.pid), ("agent", agent)):
        spent[name] += _run_us(root)
        for child in psutil.Process(root).children(recursive=True):
            try:
                program, buried = child.name(), child.cpu_times()
            except psutil.Error:
                continue
            spent[program] += _run_us(child.pid)
            if program in ("hs-shim", "hs-spawner"):  # the latter has buried shims that had nothing to do
                in_ticks += round((buried.children_user + buried.children_system) * 1e6)
    spent[OWN] = _group_us() or in_ticks
    return spent


def _group_us() -> int:
    """Of all processes in the agent's cgroup, to the microsecond; 0 where it has none. Hundredths of a second for each shim are coarse."""
    for path in Path("/sys/fs/cgroup").glob("**/hetsched-load-agent-*/cpu.stat"):
        return int(path.read_text().split()[1])
    return 0


def _run_us(pid: int) -> int:
    """To the nanosecond in the kernel; `times` counts in hundredths of a second."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except OSError:
            continue
    return total // 1000


def run_array(daemon: server.Server, tasks: int, cpu: float, before: int) -> float:
    """Seconds from the submission to all ends known."""
    began_s = time.perf_counter()
    ask(daemon, "/v1/schedule", {"template": {"command": [TRUE], "resources": {"cpu": cpu}}, "count": tasks})
    while ask(daemon, "/v1/cluster")["tasks"].get("succeeded", 0) < before + tasks:
        time.sleep(0.02)
    return time.perf_counter() - began_s


def run_single(daemon: server.Server, number: int, qos: str) -> float:
    """Milliseconds from the submission of one task to its end known."""
    ident = f"single-{qos}-{number}"
    began_s = time.perf_counter()
    ask(daemon, "/v1/schedule", {"id": ident, "command": [TRUE], "qos": qos, "resources": {"cpu": 0.1}})
    while ask(daemon, f"/v1/tasks/{ident}")["state"] != "succeeded":
        time.sleep(0.0005)
    return (time.perf_counter() - began_s) * 1e3


def fsync_ms(directory: Path) -> float:
    """Median of an append with fdatasync."""
    handle = os.open(directory / "fsync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    spent = []
    for _ in range(50):
        began_s = time.perf_counter()
        os.write(handle, bytes(200))
        os.fdatasync(handle)
        spent.append((time.perf_counter() - began_s) * 1e3)
    os.close(handle)
    return statistics.median(spent)


def shim_kb(daemon: server.Server, agent: int, running: int) -> float:
    """Private memory of a shim, mean, while so many tasks run."""
    body = {"template": {"id": "sleep", "command": ["sleep", "60"], "resources": {"cpu": 0.001}}, "count": running}
    ask(daemon, "/v1/schedule", body)
    while ask(daemon, "/v1/cluster")["tasks"].get("running", 0) < running:
        time.sleep(0.05)
    shims = [child.pid for child in psutil.Process(agent).children(recursive=True) if child.name() == "hs-shim"]
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in shims]
    private = [sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) for lines in rollups]
    return sum(private) / running


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1000, help="of an array")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=100, help="tasks that the machine has room for")
    parser.add_argument("--singles", type=int, default=20)
    parser.add_argument("--running", type=int, default=100, help="tasks that run when the memory is looked at")
    options = parser.parse_args()
    cpu = round((os.cpu_count() or 1) / options.at_once, 3)
    with tempfile.TemporaryDirectory(prefix="hs-bare-") as directory:
        program = built(Path(directory))
        disk_ms = fsync_ms(Path(directory))
        with server.own(store=None, sets=[]) as daemon, server.agent(daemon) as agent:
            run_array(daemon, options.tasks, cpu, 0)  # warms up
            time.sleep(1.0)
            singles = {
                qos: statistics.median(run_single(daemon, number, qos) for number in range(options.singles))
                for qos in ("critical", "production")
            }
            ours, limits, costs = [], [], []
            ended = options.tasks + 2 * options.singles
            for _ in range(options.rounds):
                limit, before = bare(program, options.tasks), spent_us(daemon, agent)
                wall_s = run_array(daemon, options.tasks, cpu, ended)
                ended += options.tasks
                after = spent_us(daemon, agent)
                ours.append(options.tasks / wall_s)
                limits.append(limit)
                costs.append({who: (after[who] - before[who]) / options.tasks for who in after})
            memory_kb = shim_kb(daemon, agent, options.running)
    cost = {who: statistics.median(one.get(who, 0.0) for one in costs) for who in costs[-1]}
    total, rate = sum(cost.values()), statistics.median(ours)
    limit = Bare(*(statistics.median(column) for column in zip(*limits, strict=True)))
    ratio = statistics.median(own / limit.per_s for own, limit in zip(ours, limits, strict=True))
    print(f"to their ends known {rate:8,.0f} processes/s; {total:.0f} µs of processor time each:")
    print(
        "                    "
        + ", ".join(f"{who} {us:.0f}" for who, us in sorted(cost.items(), key=lambda one: -one[1]))
    )
    print(f"bare posix_spawn    {limit.per_s:8,.0f} processes/s; {limit.cpu_us:.0f} µs of processor time each")
    print(f"ratio by processor time {limit.cpu_us / total:.2f}, by the clock {ratio:.2f}")
    print(
        f"HyperQueue, not in this run: {HYPERQUEUE_PER_S:.0f} processes/s, of which this is {rate / HYPERQUEUE_PER_S:.1f} times as many"
    )
    for qos, ms in singles.items():
        print(f"one {qos} task on the idle system: {ms:.1f} ms to its end known (an fsync of this disk: {disk_ms:.1f})")
    print(f"memory of a running task's shim: {memory_kb:.0f} kB")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
