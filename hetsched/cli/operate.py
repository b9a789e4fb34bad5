"""The operator's hand on tasks: cancel, hold, release, requeue, priority."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from hetsched.cli import exits, report
from hetsched.cli.output import emit, emit_json
from hetsched.cli.parser import Usage, add_reading, client_of, whole
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
    parser.add_argument("priority", type=whole, metavar="N", help="−1000 … 1000")
    add_reading(parser)


def _priority(options: argparse.Namespace) -> int:
    _print(options, [client_of(options).operate("priority", options.id, priority=options.priority)])
    return exits.OK


def _cancel_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    group = parser.add_argument_group("or all tasks of which every one of these is true")
    group.add_argument("--label", action="append", metavar="K=V")
    group.add_argument("--queue", action="append")
    group.add_argument("--qos", action="append")
    group.add_argument("--state", action="append", help="several, or queued,running: any of these")
    add_reading(parser)


def _cancel(options: argparse.Namespace) -> int:
    client = client_of(options)
    selectors = _selectors(options)
    if bool(options.ids) == bool(selectors):
        raise Usage("cancel what? give ids, or a selector (--label, --queue, --qos, --state)")
    if selectors:
        told = [client.cancel_where(selector) for selector in selectors]
        merged = {key: sum((answer[key] for answer in told[1:]), told[0][key]) for key in told[0]}
        emit_json(merged) if options.json else emit(f"cancelled {len(merged.get('cancelled', ()))}")
        return exits.OK
    answers, code = _each(options.ids, client.cancel)
    _print(options, answers)
    return code


def _selectors(options: argparse.Namespace) -> list[dict[str, str]]:
    """One for each state; a task has one label of a key, one queue and one qos, so of these two can only be a mistake."""
    selector: dict[str, str] = {}
    for name in ("label", "queue", "qos"):
        given = getattr(options, name) or []
        if len(given) > 1:
            raise Usage(f"--{name} is given {len(given)} times; cancel them one after the other")
        selector |= {name: given[0]} if given else {}
    states = [state for text in options.state or () for state in text.split(",")]
    if states:
        return [selector | {"state": state} for state in dict.fromkeys(states)]
    return [selector] if selector else []


COMMANDS = {
    "cancel": Command(_cancel_arguments, _cancel),
    "hold": Command(_ids, _operate),
    "release": Command(_ids, _operate),
    "requeue": Command(_ids, _operate),
    "priority": Command(_priority_arguments, _priority),
}
