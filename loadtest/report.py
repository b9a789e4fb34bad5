"""The report: from the boards to figures, and from figures to a table. README.md says what each one means.

Promises: a task that was acknowledged and not seen placed counts in `scheduling` with the time it had waited when the run ended, so a
server that stalls cannot improve its figures by not answering.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.board import Board
from loadtest.histogram import Histogram
from loadtest.mix import Mix
from loadtest.targets import Verdict

Figures = dict[str, Any]


def figures(
    boards: list[Board], results: list[Mapping[str, Any]], mix: Mix, *, start_ns: int, end_ns: int, now_ns: int
) -> Figures:
    """All that the boards tell. `start_ns`…`end_ns`: when tasks arrived; `now_ns`: when one stopped looking."""
    rows = [np.flatnonzero(board.intended) for board in boards]
    intended = _gather(boards, rows, "intended")
    acknowledged = _gather(boards, rows, "acknowledged")
    sent = _gather(boards, rows, "sent")
    kind = _gather(boards, rows, "kind")
    known = np.concatenate([board.placement_known_ns()[at] for board, at in zip(boards, rows, strict=True)])
    acked, placed = acknowledged > 0, known > 0
    waited_ns = np.where(placed, known, now_ns) - intended
    last_ns = int(acknowledged.max(initial=end_ns))
    duration_s = (end_ns - start_ns) / 1e9
    outcomes = Counter[str]()
    for result in results:
        outcomes.update(result["outcomes"])
    requests = outcomes.total()
    return {
        "offered": {"tasks": len(intended), "per_s": len(intended) / duration_s},
        "achieved": {
            "acknowledged": int(acked.sum()),
            "per_s": int(acked.sum()) / max(duration_s, (last_ns - start_ns) / 1e9),
            "placed": int(placed.sum()),
            "placed_per_s": int(placed.sum()) / max(duration_s, (int(known.max(initial=end_ns)) - start_ns) / 1e9),
            "unplaced": int((acked & ~placed).sum()),
        },
        "errors": {
            "requests": requests,
            "failed": requests - outcomes["202"],
            "rate": (requests - outcomes["202"]) / requests if requests else 0.0,
            "rejected_tasks": sum(result["rejected"] for result in results),
            "by_kind": {name: count for name, count in sorted(outcomes.items()) if name != "202"},
        },
        "lateness": _summary((sent - intended)[sent > 0]),
        "answer": _summary((acknowledged - intended)[acked]),
        "scheduling": _summary(waited_ns[acked]),
        "scheduling_by_class": {
            entry.name: _summary(waited_ns[acked & (kind == number)]) for number, entry in enumerate(mix.classes)
        },
        "tpu_queue_wait": _summary(waited_ns[acked & np.isin(kind, _asking(mix, "tpu"))]),
    }


def fragmentation(samples: Sequence[Mapping[str, float]]) -> Figures:
    """Of samples {kind: ratio} taken over the run: mean, largest and last of each kind."""
    kinds = sorted({kind for sample in samples for kind in sample})
    series = {kind: [sample[kind] for sample in samples if kind in sample] for kind in kinds}
    return {
        kind: {"mean": sum(values) / len(values), "max": max(values), "last": values[-1]}
        for kind, values in series.items()
    }


def load_on(fleet: Mapping[str, float], mix: Mix, per_s: float) -> dict[str, float]:
    """What arrives over what the fleet can hold, per resource; above 1 the queue grows, whoever schedules."""
    return {what: amount * per_s / fleet[what] for what, amount in mix.demand().items() if fleet.get(what)}


def table(report: Figures) -> str:
    """The figures for people."""
    offered, achieved, errors = report["offered"], report["achieved"], report["errors"]
    load = report.get("load", {})
    lines = [
        f"offered    {offered['tasks']:>9,} tasks  {offered['per_s']:>10,.1f}/s",
        "load       "
        + ", ".join(f"{what} {ratio:.0%}" for what, ratio in load.items())
        + " of what the fleet can hold"
        + (": more than it can, so tasks wait" if max(load.values(), default=0) > 1 else ""),
        f"achieved   {achieved['acknowledged']:>9,} tasks  {achieved['per_s']:>10,.1f}/s acknowledged",
        f"           {achieved['placed']:>9,} tasks  {achieved['placed_per_s']:>10,.1f}/s placed, {achieved['unplaced']:,} left waiting",
        f"errors     {errors['failed']:>9,} of {errors['requests']:,} requests ({errors['rate']:.3%}){_kinds(errors['by_kind'])}",
        "",
        f"{'from the intended arrival to':30}{'mean':>10}{'p50':>10}{'p99':>10}{'max':>10}   ms",
        _line("the request sent", report["lateness"]),
        _line("its answer read", report["answer"]),
        _line("the placement known", report["scheduling"]),
        *(_line(f"  {name}", summary) for name, summary in report["scheduling_by_class"].items()),
        _line("the placement known, TPU tasks", report["tpu_queue_wait"]),
    ]
    for kind, values in report.get("fragmentation", {}).items():
        lines.append(
            f"fragmentation {kind}: mean {values['mean']:.1%}, max {values['max']:.1%}, last {values['last']:.1%}"
        )
    fleet, daemon = report.get("fleet"), report.get("daemon")
    if fleet:
        lines.append(
            f"fleet: {fleet['started']:,} attempts started, {fleet['stopped']:,} stopped, "
            f"{fleet['started_twice']} started twice, {fleet['overcommitted']} over a whole device"
        )
    if daemon:
        lines.append(
            f"daemon: {daemon['cpu_s']:.2f} s of CPU ({daemon['cpu_us_per_task']:.0f} µs a task), {daemon['rss_bytes'] / 1e6:.0f} MB"
        )
    return "\n".join(lines)


def verdicts(judged: Iterable[Verdict]) -> str:
    """One line a target."""
    return "\n".join(
        f"{'reached' if each.reached else 'MISSED':8}{each.target.figure} {each.target.operator} {each.target.value:g}: "
        + ("not measured" if each.measured is None else f"{each.measured:g}")
        for each in judged
    )


def _gather(boards: list[Board], rows: list[NDArray[np.intp]], column: str) -> NDArray[np.int64]:
    return np.concatenate([np.asarray(getattr(board, column))[at] for board, at in zip(boards, rows, strict=True)])


def _asking(mix: Mix, device_kind: str) -> list[int]:
    return [number for number, entry in enumerate(mix.classes) if device_kind in entry.kinds]


def _summary(values_ns: NDArray[np.int64]) -> dict[str, float]:
    histogram = Histogram()
    histogram.record(values_ns)
    return histogram.summary_ms()


def _line(name: str, summary: Mapping[str, float]) -> str:
    if not summary["count"]:
        return f"{name:30}{'none':>10}"
    return f"{name:30}" + "".join(f"{summary[key]:>10.2f}" for key in ("mean_ms", "p50_ms", "p99_ms", "max_ms"))


def _kinds(by_kind: Mapping[str, int]) -> str:
    return ": " + ", ".join(f"{count:,} × {name}" for name, count in by_kind.items()) if by_kind else ""
