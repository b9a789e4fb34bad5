"""How many tasks a node starts and ends in a second, and what a shim weighs.

The bounds here only catch a mistake of another order; `loadtest/bench_processes.py` measures.
"""

from __future__ import annotations

import time
from pathlib import Path

from hetsched.agent.shim.processes import descendants
from tests.agent_run.bench import Bench, until

TASKS = 100


async def test_starts_a_second(bench: Bench, record_property: object) -> None:
    await bench.run("warm", "true")
    begun = time.perf_counter()
    for number in range(TASKS):
        bench.start(f"t{number}", "true")
    await until(lambda: sum(type(one).__name__ == "Ended" for one in bench.said) == TASKS + 1)
    rate = TASKS / (time.perf_counter() - begun)
    print(f"\n{rate:.0f} tasks a second, from order to end")
    assert rate > 50


async def test_a_shim_is_light(bench: Bench) -> None:
    bench.start("t", "sleep", "100")
    await bench.started("t")
    shim = await bench.shim_of("t")
    rollup = dict(line.split()[:2] for line in Path(f"/proc/{shim}/smaps_rollup").read_text().splitlines()[1:])
    private_kb = int(rollup["Private_Dirty:"]) + int(rollup["Private_Clean:"])
    print(f"\na shim: {rollup['Rss:']} kB in all, {private_kb} kB its own")
    assert private_kb < 1000
    assert len(descendants(shim)) == 1
