"""`why`: the reason that counts first, the evidence below it, what would help last."""

from __future__ import annotations

import argparse
from typing import Any

from hetsched.cli import exits, words
from hetsched.cli.output import emit, emit_json, one_line, pairs, table
from hetsched.cli.parser import add_reading, client_of
from hetsched.cli.table import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    add_reading(parser)


def _why(options: argparse.Namespace) -> int:
    answer = client_of(options).explain(options.id)
    emit_json(answer) if options.json else _tell(answer)
    return exits.OK


def _tell(answer: dict[str, Any]) -> None:
    state, reason = answer.get("state", ""), answer.get("reason", "")
    emit(one_line(f"{answer.get('id', '')} is {state}" + (f": {reason}" if reason not in ("", state) else "")))
    emit("  " + one_line(answer.get("detail", "")))
    for reason in answer.get("secondary") or ():
        emit("  also " + one_line(f"{reason.get('reason', '')}: {reason.get('detail', '')}"))
    rows = [(name.replace("_", " "), words.value(answer.get(name))) for name in _SHOWN]
    pairs(("  " + name, value) for name, value in rows)
    if answer.get("claim"):
        claim = answer["claim"]
        emit("  " + one_line(f"claim on {claim.get('node')}: {claim.get('proof', '')}"))
        emit("  " + one_line(f"its price: {claim.get('price_device_seconds', 0):g} device seconds of lost work"))
    for remedy in answer.get("remedies") or ():
        emit(one_line(f"  would help: {words.value(remedy)}"))
    if answer.get("run_time"):
        emit("  " + one_line(_run_time(answer["run_time"])))
    if answer.get("terms"):
        emit()
        table(("TERM", "WEIGHT", "HERE", "BEST FOR A NODE WHERE IT IS 1"), map(_term, answer["terms"]))
    if answer.get("nodes"):
        emit()
        table(("NODES", "RULED OUT BY"), [(count, why.replace("_", " ")) for why, count in answer["nodes"].items()])


def _run_time(found: dict[str, Any]) -> str:
    if found["source"] == "learned":
        return f"expected to run {found['p50']:g} s (9 in 10 no longer than {found['p90']:g} s), as learned"
    return f"expected to run {found['p50']:g} s, by its estimate"


def _term(row: dict[str, Any]) -> tuple[object, ...]:
    here = row.get("value")
    return row["term"], f"{row['weight']:g}", "-" if here is None else f"{here:.2f}", f"{row['what']} ({row['source']})"


_SHOWN = ("position", "eta_seconds", "nodes_that_fit", "nodes_that_could_ever")

COMMANDS = {"why": Command(_arguments, _why)}
