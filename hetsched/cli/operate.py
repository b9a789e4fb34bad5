"""The operator's hand on tasks: cancel, hold, release, requeue, priority."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from hetsched.cli import exits, report
from hetsched.cli.output import emit, emit_json
from hetsched.cli.parser import Usage, add_reading, client_of
from hetsched.cli.table import Command
from hetsched.errors import HetschedError


def _each(ids: list[str], act: Callable[[str], Any]) -> tuple[list[Any], int]:
    """`act` on all of them, whatever becomes of the ones before; answers, and the first failure's exit code."""
    answers, code = [], exits.OK
    for task_id in ids:
        try:
            answers.append(act(task_id))
        except HetschedError as error:
            report.explain(error)
            code = code or exits.code_of(error)
            if code == exits.UNREACHABLE:
                break
    return answers, code


def _print(options: argparse.Namespace, answers: list[Any]) -> None:
    if options.json:
        emit_json({"tasks": answers})
        return
    for answer in answers:
        if isinstance(answer, dict) and "id" in answer:
            emit(f"{answer['id']} {answer.get('state', '')}".rstrip())


def _ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID")
    add_reading(parser)


def _operate(options: argparse.Namespace) -> int:
    client = client_of(options)
    answers, code = _each(options.ids, lambda task_id: client.operate(options.verb, task_id))
    _print(options, answers)
    return code


def _priority_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("priority", type=int, metavar="N", help="−1000 … 1000")
    add_reading(parser)


def _priority(options: argparse.Namespace) -> int:
    _print(options, [client_of(options).operate("priority", options.id, priority=options.priority)])
    return exits.OK


def _cancel_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    group = parser.add_argument_group("or all tasks of which every one of these is true")
    group.add_argument("--label", metavar="K=V")
    group.add_argument("--queue")
    group.add_argument("--qos")
    group.add_argument("--state")
    add_reading(parser)


def _cancel(options: argparse.Namespace) -> int:
    client = client_of(options)
    selector = {k: v for k in ("label", "queue", "qos", "state") if (v := getattr(options, k)) is not None}
    if bool(options.ids) == bool(selector):
        raise Usage("cancel what? give ids, or a selector (--label, --queue, --qos, --state)")
    if selector:
        answer = client.cancel_where(selector)
        emit_json(answer) if options.json else emit(f"cancelled {len(answer.get('cancelled', ()))}")
        return exits.OK
    answers, code = _each(options.ids, client.cancel)
    _print(options, answers)
    return code


COMMANDS = {
    "cancel": Command(_cancel_arguments, _cancel),
    "hold": Command(_ids, _operate),
    "release": Command(_ids, _operate),
    "requeue": Command(_ids, _operate),
    "priority": Command(_priority_arguments, _priority),
}
