"""Several presets on the same world, one after the other: a row each, to choose by.

hetsched simulate --nodes nodes.csv --tasks tasks.csv --policy price,fgd,first-fit
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.sim.engine import Engine
from hetsched.sim.log import EventLog
from hetsched.sim.marks import AT_PERCENT, Marks
from hetsched.sim.scenario import Scenario
from hetsched.sim.summary import Summary

HEADS = ("policy", *(f"@{percent}%" for percent in AT_PERCENT), "end %", "placed", "refused", "mean wait", "p99", "µs")
LEGEND = """\
@100%: {kind} allocated when tasks for so much of the cluster had come, in percent of it; end: at the end. Waits in seconds.
µs: of the processor for a decision (prices, order, fit, rank).
"""


def compare(read: Callable[[str], Scenario], policies: list[str]) -> dict[str, Any]:
    """Run the world once a preset. `read`: the world under this preset."""
    rows, kind = [], ""
    for policy in policies:
        world = read(policy)
        marks = Marks(world.nodes)
        rows.append(_row(policy, world, marks))
        kind = marks.kind
    return {"kind": kind, "policies": rows}


def _row(policy: str, world: Scenario, marks: Marks) -> dict[str, Any]:
    log, summary = EventLog(None), Summary(world.nodes)
    engine = Engine(world, (summary, log, marks))
    engine.run()
    told = summary.told(engine.now_ns, 0, log.sha256(), engine.deciding.seconds, engine.stepping.seconds)
    rate = told["decisions_per_second"]
    return {
        "policy": policy,
        "allocated_percent": {str(percent): marks.at(percent) for percent in AT_PERCENT},
        "allocated_percent_end": marks.last,
        "placed": summary.counts["placed"],
        "rejected": told["rejected"],
        "wait": told["wait"],
        "decision_us": 1e6 / rate if rate else None,
        "events_sha256": told["events_sha256"],
    }


def table(compared: dict[str, Any]) -> str:
    """For people."""
    rows = [HEADS, *(_cells(row) for row in compared["policies"])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    return "\n".join(lines) + "\n" + LEGEND.format(kind=compared["kind"] or "devices")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["policy"],
        *(_number(row["allocated_percent"][str(percent)], 2) for percent in AT_PERCENT),
        _number(row["allocated_percent_end"], 2),
        str(row["placed"]),
        str(row["rejected"]),
        _number(row["wait"]["mean"], 1),
        _number(row["wait"]["p99"], 1),
        _number(row["decision_us"], 0),
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
