"""`python -m tests.faults`: the matrix of `matrix.py`, whole or in parts."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.faults import matrix


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=matrix.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="parts, by commas")
    parser.add_argument("--runs", type=int, help="of each, in place of what is missing")
    parser.add_argument("--to", type=Path, default=Path("faults.jsonl"), help="where outcomes are added")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no part after so long")
    parser.add_argument("--table", action="store_true", help="only tell what was run so far")
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else list(matrix.PARTS)
    unknown = [name for name in names if name not in matrix.PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]}; there are {', '.join(matrix.PARTS)}")
    clean, until_s = True, time.monotonic() + asked.minutes * 60
    for name in [] if asked.table else names:
        done = sum(line["runs"] for line in matrix.read(asked.to) if line["part"] == name and matrix.is_clean(line))
        if time.monotonic() < until_s:
            clean &= matrix.run(
                name, asked.runs if asked.runs is not None else matrix.PARTS[name].wanted - done, asked.to
            )
    print(matrix.table(matrix.read(asked.to)))
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
