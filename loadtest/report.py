"""The report for people: figures as a table. README.md says what each one means."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from loadtest.mix import Mix
from loadtest.tally import Figures
from loadtest.targets import Verdict


def fragmentation(samples: Sequence[Mapping[str, float]]) -> Figures:
    """Of samples {kind: ratio} taken over the run: mean, largest and last of each kind."""
    kinds = sorted({kind for sample in samples for kind in sample})
    series = {kind: [sample[kind] for sample in samples if kind in sample] for kind in kinds}
    return {
        kind: {"mean": sum(values) / len(values), "max": max(values), "last": values[-1]}
        for kind, values in series.items()
    }


def course(memory: Sequence[float]) -> dict[str, float]:
    """Of resident bytes, looked at over the run at least once: the median of its second and of its last quarter."""
    quarter = max(1, len(memory) // 4)
    return {
        "second_quarter_bytes": statistics.median(memory[quarter : 2 * quarter] or memory),
        "last_quarter_bytes": statistics.median(memory[-quarter:]),
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
        *([_line("its end known", report["end"])] if report["end"]["count"] else []),
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
            f"daemon: {daemon['cpu_s']:.2f} s of CPU ({daemon['cpu_us_per_task']:.1f} µs a task), {daemon['rss_bytes'] / 1e6:.0f} MB"
            f" with its journal server; in the second and the last quarter of the run: {_course(daemon['memory'])},"
            f" the server {_course(daemon['journal_memory'])}"
        )
    spent = report.get("cpu_us_per_task")
    if spent:
        lines.append("processor time a task: " + ", ".join(f"{name} {us:.2f} µs" for name, us in spent.items()))
    return "\n".join(lines)


def verdicts(judged: Iterable[Verdict]) -> str:
    """One line a target."""
    return "\n".join(
        f"{'reached' if each.reached else 'MISSED':8}{each.target.figure} {each.target.operator} {each.target.value:g}: "
        + ("not measured" if each.measured is None else f"{each.measured:g}")
        for each in judged
    )


def _course(memory: Mapping[str, float]) -> str:
    return f"{memory['second_quarter_bytes'] / 1e6:.0f} and {memory['last_quarter_bytes'] / 1e6:.0f} MB"


def _line(name: str, summary: Mapping[str, float]) -> str:
    if not summary["count"]:
        return f"{name:30}{'none':>10}"
    return f"{name:30}" + "".join(f"{summary[key]:>10.2f}" for key in ("mean_ms", "p50_ms", "p99_ms", "max_ms"))


def _kinds(by_kind: Mapping[str, int]) -> str:
    return ": " + ", ".join(f"{count:,} × {name}" for name, count in by_kind.items()) if by_kind else ""
