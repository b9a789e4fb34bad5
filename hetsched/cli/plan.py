"""`plan`: what submitting this would do. The same options as `submit`; the answer is of a copy of the scheduler, and nothing was submitted."""

from __future__ import annotations

import argparse
from typing import Any

from hetsched.cli import exits, task_files, task_options, words
from hetsched.cli.graph import graph_in
from hetsched.cli.output import emit, emit_json, note, one_line, table
from hetsched.cli.parser import Usage, add_connection, add_json, client_of
from hetsched.cli.submit import body_of, directory_in_data, refusals
from hetsched.cli.table import Command

MOST_ROWS = 100
NO_GRAPHS = (
    "a graph cannot be planned as a whole, its tasks are cut while it runs: plan one operator as a task "
    "(hetsched plan --gpu N …), try all of it in a scenario (hetsched simulate, `graph:` among its events), "
    "or submit it and read hetsched graph show ID"
)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="tasks as JSON, YAML or NDJSON; - reads stdin")
    task_options.add(parser)
    add_json(parser)
    add_connection(parser)


def _plan(options: argparse.Namespace) -> int:
    directory_in_data(options)
    in_file = None if options.file is None else task_files.read(options.file)
    if graph_in(in_file) is not None:
        raise Usage(NO_GRAPHS)
    answer = client_of(options).plan(body_of(options, in_file))
    if options.json:
        emit_json(answer)
    else:
        _tell(answer)
    return exits.REFUSED if refusals(answer) else exits.OK


def _tell(answer: dict[str, Any]) -> None:
    tasks = answer.get("tasks") or []
    table(("TASK", "STARTS", "WHERE", "BECAUSE"), [_row(task) for task in tasks[:MOST_ROWS]], nothing="no tasks")
    if len(tasks) > MOST_ROWS:
        emit(f"… and {len(tasks) - MOST_ROWS} more; --json tells all")
    for missing in answer.get("left_out") or ():
        note(one_line(missing["detail"]))
    note(_summary(answer.get("summary") or {}))


def _row(task: dict[str, Any]) -> tuple[object, ...]:
    placement = task.get("placement") or {}
    where = f"{placement.get('node', '')} {words.devices(placement.get('devices', ()))}".strip()
    return task.get("id") or f"#{task.get('index')}", _when(task), where or "-", _because(task)


def _when(task: dict[str, Any]) -> str:
    starts, eta = task.get("starts"), task.get("eta")
    if starts is None:
        return f"is {task.get('state')}"
    if starts == "now":
        return "now"
    return words.eta(eta) if eta else "later"


def _because(task: dict[str, Any]) -> str:
    if task.get("known"):
        return "it was submitted before"
    victims = [victim["id"] for victim in task.get("victims") or ()]
    if victims:
        return f"evicts {', '.join(victims)}: {task.get('price_device_seconds') or 0:g} device seconds of work lost"
    if task.get("reason"):
        unknown = "" if task.get("eta") else f"; when: {task.get('eta_reason', 'not known')}"
        return one_line(f"{task['reason']}: {task.get('detail', '')}{unknown}")
    return ""


def _summary(summary: dict[str, Any]) -> str:
    said = [f"{summary.get(key, 0)} {text}" for key, text in _COUNTS if summary.get(key)]
    victims = summary.get("victims", 0)
    if victims:
        said.append(f"{victims} evicted for {summary.get('price_device_seconds', 0):g} device seconds")
    return f"{', '.join(said) or 'nothing'}; nothing was submitted"


_COUNTS = (("now", "now"), ("after_victims", "after others gave way"), ("later", "later"), ("rejected", "refused"))

COMMANDS = {
    "plan": Command(_arguments, _plan, "hetsched plan [options] -- COMMAND…   |   hetsched plan [options] FILE")
}
