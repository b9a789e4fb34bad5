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


_APART = {"id", "state", "reason", "detail", "reasons", "ruled_out", "nodes", "remedies", "history"}


def _tell(answer: dict[str, Any]) -> None:
    head = f"{answer.get('id', '')} {answer.get('state', '')}"
    if answer.get("reason"):
        head += f": {answer['reason']}"
    emit(one_line(head))
    if answer.get("detail"):
        emit(one_line(answer["detail"]))
    pairs((name.replace("_", " "), words.value(value)) for name, value in answer.items() if name not in _APART)
    _reasons(answer.get("reasons"))
    _ruled_out(answer.get("ruled_out") or answer.get("nodes"))
    for remedy in answer.get("remedies") or ():
        emit(one_line(f"would help: {words.value(remedy)}"))


def _reasons(reasons: Any) -> None:
    for reason in reasons or ():
        emit(one_line(f"  {words.value(reason)}"))


def _ruled_out(found: Any) -> None:
    if isinstance(found, dict) and found:
        emit()
        table(("NODES", "RULED OUT BY"), [(words.value(count), reason) for reason, count in found.items()])


COMMANDS = {"why": Command(_arguments, _why)}
