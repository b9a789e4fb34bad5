"""Every benchmark, one after the other, in at most ten minutes: what each asks, what it measured beside which limit.

    python -m loadtest.benches [--only bulk,plan] [--traces FOLDER]

Short forms of each (its own options give longer ones). With a folder of the public traces (loadtest/README.md names the files) those that need
them run too. Exit code 1 if one of them failed or was stopped at its limit.
"""

from __future__ import annotations

import argparse
import ast
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_S = 120.0
SHORT: dict[str, list[str]] = {
    "core_cycle": "--presets pack,fragment,price --queued 0,100000 --tasks 5000 --rounds 3".split(),
    "turns": ["--tasks", "50000"],
    "bulk": ["--seconds", "2", "--rounds", "3"],
    "single_requests": ["--seconds", "1.5", "--rounds", "3"],
    "immediate_under_bulk": ["--seconds", "4", "--rounds", "1"],
    "processes": ["--rounds", "3"],
    "plan": ["--waiting", "10000"],
    "placement": ["--policies", "price,fgd,first-fit,best-fit"],
    "graphs": [],
    "pending": ["--tasks", "200000"],
    "holds": ["--waiting", "500000"],
    "cells": "--tasks 5000 --rounds 2 --seconds 5".split(),
}
WITH_TRACES: dict[str, list[str]] = {
    "heterogeneity": "--table gavel_throughputs.csv --tasks 600 --seeds 1".split(),
    "replay": (
        "--jobs philly_jobs.csv --nodes openb_nodes.csv --pods openb_pods_default.csv --first 4000 --count 6000 --load 110"
    ).split(),
}


def question(name: str) -> str:
    """The first line of what the benchmark says of itself."""
    text = ast.get_docstring(ast.parse((HERE / f"bench_{name}.py").read_text())) or ""
    return text.split("\n", 1)[0]


def run(name: str, arguments: list[str], folder: Path | None) -> bool:
    """Runs it, its output on ours; whether it went well."""
    words = [str(folder / word) if folder and word.endswith(".csv") else word for word in arguments]
    print(f"\n== {name}: {question(name)}", flush=True)
    began_s = time.monotonic()
    try:
        code = subprocess.run(
            [sys.executable, "-m", f"loadtest.bench_{name}", *words], cwd=HERE.parent, timeout=LIMIT_S
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"-- stopped after {LIMIT_S:.0f} s", flush=True)
        return False
    print(f"-- {time.monotonic() - began_s:.0f} s" + (f", exit code {code}" if code else ""), flush=True)
    return code == 0


def main(argv: list[str] | None = None) -> int:
    """0: all went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names, with commas")
    parser.add_argument("--traces", type=Path, help="folder of the public traces")
    options = parser.parse_args(argv)
    benches = SHORT | (WITH_TRACES if options.traces else {})
    names = options.only.split(",") if options.only else list(benches)
    unknown = [name for name in names if name not in benches]
    if unknown:
        parser.error(
            f"no benchmark {unknown[0]!r} here; there are: {', '.join(benches)}"
            + ("" if options.traces else "; more with --traces")
        )
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {time.strftime('%d %B %Y')}",
        flush=True,
    )
    failed = [name for name in names if not run(name, benches[name], options.traces)]
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
