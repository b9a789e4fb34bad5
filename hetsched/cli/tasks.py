"""`list` and `show`: tasks as tables for people, as the daemon's own JSON for programs."""

from __future__ import annotations

import argparse
import shlex
from collections import deque
from itertools import islice
from typing import Any

from hetsched.cli import exits, words
from hetsched.cli.output import emit, emit_json, note, pairs, table
from hetsched.cli.parser import Usage, add_reading, client_of, whole
from hetsched.cli.table import Command

_LIMIT = 1000


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", help="queued, running, …, or several: queued,running")
    parser.add_argument("--queue")
    parser.add_argument("--label", metavar="K=V")
    parser.add_argument("--qos")
    parser.add_argument("--since", metavar="TIME", help="submitted since, RFC 3339")
    parser.add_argument("--limit", type=whole, default=_LIMIT, metavar="N", help=f"at most so many ({_LIMIT}; 0: all)")
    parser.add_argument("--last", type=whole, metavar="N", help="the N submitted last, newest first")
    add_reading(parser)


def _list(options: argparse.Namespace) -> int:
    filters = {name: getattr(options, name) for name in ("state", "queue", "label", "qos", "since")}
    if options.limit < 0:
        raise Usage(f"--limit {options.limit}: a whole number, 0 for all")
    if options.last is not None and options.last < 1:
        raise Usage(f"--last {options.last}: at least 1")
    tasks, more = _last(options, filters) if options.last else _first(options, filters)
    if options.json:
        emit_json({"tasks": tasks})
    else:
        table(
            ("ID", "STATE", "QOS", "QUEUE", "NODE", "DEVICES", "ATTEMPT", "NAME"), map(_row, tasks), nothing="no tasks"
        )
    if more:
        note(f"only the first {len(tasks)} are shown; --limit 0 shows all, --last N the newest")
    return exits.OK


def _first(options: argparse.Namespace, filters: dict[str, str | None]) -> tuple[list[dict[str, Any]], bool]:
    """In order of submission, and whether there are more."""
    limit = options.limit or None
    found = list(islice(client_of(options).tasks(limit=limit and limit + 1, **filters), limit and limit + 1))
    return found[:limit], limit is not None and len(found) > limit


def _last(options: argparse.Namespace, filters: dict[str, str | None]) -> tuple[list[dict[str, Any]], bool]:
    """Newest first. The daemon lists in order of submission, so all that match are read, and only the last ones kept."""
    return list(reversed(deque(client_of(options).tasks(limit=None, **filters), maxlen=options.last))), False


def _row(task: dict[str, Any]) -> tuple[object, ...]:
    placement = task.get("placement") or {}
    return (
        task.get("id", ""),
        task.get("state", ""),
        task.get("qos", ""),
        task.get("queue", ""),
        placement.get("node", "-"),
        words.devices(placement.get("devices", ())) or "-",
        task.get("attempt") or "-",
        task.get("name") or "",
    )


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    add_reading(parser)


def _show(options: argparse.Namespace) -> int:
    task = client_of(options).task(options.id)
    emit_json(task) if options.json else show(task)
    return exits.OK


_TIMES = ("submitted_at", "changed_at", "deadline")
_APART = {"spec", "attempts", "placement", "claim", *_TIMES}
_SAID_ABOVE = ("id", "qos", "queue", "name", "kind", "priority", "labels", "deadline")


def show(task: dict[str, Any]) -> None:
    """One task, for people."""
    rows = [(name, words.value(value)) for name, value in task.items() if name not in _APART]
    rows += [(name.removesuffix("_at"), words.moment(task[name])) for name in _TIMES if task.get(name) is not None]
    if placement := task.get("placement"):
        rows.append(("placement", f"{placement.get('node')} {words.devices(placement.get('devices', ()))}"))
    pairs(rows)
    spec = task.get("spec") or {}
    if spec:
        emit()
        pairs((name, _field(name, value)) for name, value in spec.items() if name not in _SAID_ABOVE)
    if task.get("attempts"):
        emit()
        columns = ("ATTEMPT", "OUTCOME", "NODE", "DEVICES", "STARTED", "ENDED", "REASON")
        table(columns, map(_attempt, task["attempts"]))


def _field(name: str, value: Any) -> str:
    if name == "command":
        return shlex.join(value)
    return words.request(value) if name in ("resources", "limits") else words.value(value)


def _attempt(attempt: dict[str, Any]) -> tuple[object, ...]:
    return (
        attempt.get("attempt", ""),
        attempt.get("outcome") or attempt.get("state") or "-",
        attempt.get("node", "-"),
        words.devices(attempt.get("devices", ())) or "-",
        words.moment(attempt.get("started_at")),
        words.moment(attempt.get("ended_at")),
        attempt.get("reason") or "",
    )


COMMANDS = {"list": Command(_list_arguments, _list), "show": Command(_show_arguments, _show)}
