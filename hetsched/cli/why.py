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
    if answer.get("nodes"):
        emit()
        table(("NODES", "RULED OUT BY"), [(count, why.replace("_", " ")) for why, count in answer["nodes"].items()])


_SHOWN = ("position", "eta_seconds", "nodes_that_fit", "nodes_that_could_ever")

COMMANDS = {"why": Command(_arguments, _why)}
