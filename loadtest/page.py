"""The report as one HTML file: the table, the verdicts, and the run's course over time. Nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from loadtest import plot, report
from loadtest.tally import Figures

_STYLE = (
    "body{font-family:sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}pre{background:#f6f6f6;padding:1rem;overflow:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #ddd;padding:.3rem .6rem;text-align:right}td:first-child{text-align:left}"
)


def page(figures: Figures) -> str:
    """The whole page."""
    options = figures["run"]["options"]
    title = f"{figures['offered']['per_s']:,.0f} tasks a second, {options['mode']}, mix {options['mix']}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>hetsched load: {escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        _verdicts(figures["targets"]),
        f"<pre>{escape(report.table(figures))}</pre>",
        *_charts(figures["course"]),
        _searched(figures.get("search")),
        "<h2>How it was run</h2><pre>"
        + escape("\n".join(f"{name}: {value}" for name, value in options.items()))
        + "</pre>",
        "<p>"
        + escape(", ".join(f"{name} {value}" for name, value in figures["run"]["machine"].items()))
        + "</p></html>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _verdicts(targets: list[Mapping[str, Any]]) -> str:
    if not targets:
        return ""
    rows = "".join(
        f"<tr><td>{escape(each['figure'])}</td><td>{escape(each['operator'])} {each['value']:g}</td>"
        f"<td>{'not measured' if each['measured'] is None else format(each['measured'], 'g')}</td>"
        f"<td>{'reached' if each['reached'] else '<b>missed</b>'}</td></tr>"
        for each in targets
    )
    return f"<table><tr><th>figure</th><th>wanted</th><th>measured</th><th></th></tr>{rows}</table>"


def _charts(course: list[Figures]) -> list[str]:
    return [
        _latencies(course, "answer", "Its answer"),
        _latencies(course, "scheduling", "Its placement known"),
        _rates(course),
    ]


def _latencies(course: list[Figures], what: str, title: str) -> str:
    series = {
        name: [(part["at_s"], part[what][key]) for part in course if part[what]["count"]]
        for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"), ("largest", "max_ms"))
    }
    return _chart(f"{title}, from the intended arrival", "ms", series)


def _rates(course: list[Figures]) -> str:
    series = {
        name: [(part["at_s"], part[f"{name}_per_s"]) for part in course]
        for name in ("offered", "acknowledged", "placed")
    }
    return _chart("Tasks by when they arrived", "a second", series)


def _chart(title: str, up: str, series: Mapping[str, list[tuple[float, float]]]) -> str:
    most = max((value for points in series.values() for _, value in points), default=0.0)
    if sum(map(len, series.values())) < 2 * len(series):
        return ""  # a line needs two points
    return plot.lines(title, "seconds", up, series, least=0, most=most * 1.05 or 1.0)


def _searched(search: Mapping[str, Any] | None) -> str:
    if search is None:
        return ""
    rows = "".join(
        f"<tr><td>{each['rate_per_s']:,.0f}/s</td><td>{escape(each['missed']) or 'reached'}</td></tr>"
        for each in search["tried"]
    )
    return f"<h2>Every rate that was tried</h2><table>{rows}</table>"
