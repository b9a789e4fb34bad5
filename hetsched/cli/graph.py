"""Graphs of operators: listed, shown, cancelled. They are submitted by `submit FILE`, where FILE has `graph:`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from hetsched.cli import exits
from hetsched.cli.output import emit, emit_json, note, pairs, table
from hetsched.cli.parser import Usage, add_reading, client_of
from hetsched.cli.table import Command
from hetsched.client import ENDED, Client

COLUMNS = ("ID", "STATE", "DONE", "OPERATORS", "WAITING", "LIVE", "SECONDS", "QUEUE")
OPERATORS = ("OPERATOR", "STATE", "DONE", "TASKS", "NODES", "AFTER")


def _list(options: argparse.Namespace) -> int:
    answer = client_of(options).graphs()
    emit_json(answer) if options.json else table(COLUMNS, map(_row, answer["graphs"]), nothing="no graphs")
    return exits.OK


def _row(graph: dict[str, Any]) -> tuple[object, ...]:
    return (
        graph["id"],
        graph["state"],
        _percent(graph["progress"]),
        sum(graph["states"].values()),
        graph["tasks"]["waiting"],
        graph["tasks"]["live"],
        f"{graph['seconds']:.0f}",
        graph["queue"],
    )


def _id_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    add_reading(parser)


def _show(options: argparse.Namespace) -> int:
    graph = client_of(options).graph(options.id)
    if options.json:
        emit_json(graph)
        return exits.OK
    path = graph["critical_path"]
    left = graph["planned_seconds_left"]
    pairs(
        [
            ("id", graph["id"]),
            ("state", graph["state"]),
            ("done", _percent(graph["progress"])),
            ("seconds", f"{graph['seconds']:.1f}" + ("" if left is None else f", by the plan {left:.1f} more")),
            ("critical path", f"{path['seconds']:.1f} s: {' '.join(path['operators'])}"),
            ("bound", f"{graph['bound']['seconds']:.1f} s (all work over all speeds: {graph['bound']['work']:.1f} s)"),
            ("nothing can run", " ".join(graph["unplaceable"]) or "-"),
        ]
    )
    table(OPERATORS, map(_operator, graph["operators"]))
    return exits.OK


def _operator(one: dict[str, Any]) -> tuple[object, ...]:
    samples = one.get("samples")
    done = f"{samples['done']}/{samples['end'] - samples['begin']}" if samples else "-"
    return one["id"], one["state"], done, one["tasks"], " ".join(one["nodes"]) or "-", " ".join(one["after"]) or "-"


def _percent(part: float) -> str:
    return f"{part * 100:.0f} %"


def _cancel(options: argparse.Namespace) -> int:
    answer = client_of(options).cancel_graph(options.id)
    emit_json(answer) if options.json else emit(answer["id"])
    return exits.OK


# ---------------------------------------------------------------------- for submit


def graph_in(body: Any) -> dict[str, Any] | None:
    """What stands under `graph:`, if the file is of a graph."""
    if not isinstance(body, dict) or "graph" not in body:
        return None
    if len(body) > 1 or not isinstance(body["graph"], dict):
        raise Usage("a file of a graph has graph: and its fields below, and nothing else")
    graph: dict[str, Any] = body["graph"]
    return graph


def submit(options: argparse.Namespace, graph: dict[str, Any], fields: dict[str, Any]) -> int:
    """Hand it in, and wait for it where that is wanted. Options of the command line go into its template."""
    if options.follow:
        raise Usage("--follow takes one task; --wait waits for a graph")
    fields = dict(fields)
    ident = fields.pop("id", None)
    if fields and isinstance(graph.get("template", {}), dict):
        graph = {**graph, "template": {**graph.get("template", {}), **fields}}
    client = client_of(options)
    answer = client.submit_graph({**graph, **({"id": ident} if ident else {})})
    if not options.json:
        emit(answer["id"])
        note(f"{answer['operators']} operators; hetsched graph show {answer['id']}")
    if not options.wait:
        if options.json:
            emit_json(answer)
        return exits.OK
    ended = _wait(client, answer["id"], options.timeout, time.sleep)
    if options.json:
        emit_json(ended)
    return exits.OK if ended["state"] == "succeeded" else exits.TASK_FAILED


def _wait(client: Client, ident: str, timeout_s: float | None, sleep: Callable[[float], None]) -> dict[str, Any]:
    until = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s = 0.05
    while (graph := client.graph(ident, operators=False))["state"] not in ENDED:
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"graph {ident} is still {graph['state']}")
        sleep(pause_s)
        pause_s = min(pause_s * 1.5, 1.0)
    return graph


COMMANDS = {
    "graph list": Command(add_reading, _list),
    "graph show": Command(_id_arguments, _show),
    "graph cancel": Command(_id_arguments, _cancel),
}
