"""What a run has to reach: a TOML file of `"figure" = "operator value"`, checked against the report.

    [targets]
    "scheduling.p99_ms" = "<= 50"
    "errors.rate"       = "== 0"
    "achieved.per_s"    = ">= 950"

Figures are named by their path in the JSON report. A figure that the report lacks misses its target: nothing measured is no pass.
"""

from __future__ import annotations

import math
import operator
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


class TargetError(ValueError):
    """The targets file cannot be read; the message names the line's key and what is allowed."""


class Target(NamedTuple):
    figure: str
    operator: str
    value: float


class Verdict(NamedTuple):
    """`measured` is None where the report has no such figure."""

    target: Target
    measured: float | None
    reached: bool


def read_targets(path: Path) -> list[Target]:
    """Raises TargetError."""
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TargetError(f"{path}: {error}") from None
    unknown = sorted(set(table) - {"targets"})
    if unknown or not isinstance(table.get("targets"), dict):
        raise TargetError(f"{path}: one table [targets] is expected" + (f", not {unknown[0]!r}" if unknown else ""))
    return [_target(figure, text) for figure, text in table["targets"].items()]


def judge(targets: list[Target], report: Mapping[str, Any]) -> list[Verdict]:
    """One verdict a target, in the file's order."""
    return [_verdict(target, report) for target in targets]


def _target(figure: str, text: object) -> Target:
    parts = text.split() if isinstance(text, str) else []
    if len(parts) != 2 or parts[0] not in OPERATORS:
        raise TargetError(f'{figure}: expected text like "<= 50" with one of {" ".join(OPERATORS)}, not {text!r}')
    try:
        value = float(parts[1])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TargetError(f"{figure}: {parts[1]!r} is no number")
    return Target(figure, parts[0], value)


def _verdict(target: Target, report: Mapping[str, Any]) -> Verdict:
    found: Any = report
    for part in target.figure.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if not isinstance(found, int | float):
        return Verdict(target, None, False)
    return Verdict(target, float(found), OPERATORS[target.operator](float(found), target.value))
