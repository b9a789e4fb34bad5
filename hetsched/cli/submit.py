"""`submit`: options and a command, or a file, become one body; the ids are printed, one a line.

stdout is for programs (`id=$(hetsched submit …)`), everything else goes to stderr.
"""

from __future__ import annotations

import argparse
import secrets
from typing import Any

from hetsched.cli import exits, task_files, task_options
from hetsched.cli import graph as graphs
from hetsched.cli.output import emit, emit_json, note
from hetsched.cli.parser import Usage, add_connection, add_json, client_of, seconds, whole
from hetsched.cli.report import problem_lines
from hetsched.cli.table import Command
from hetsched.cli.waiting import follow_to_end, wait_for


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="tasks as JSON, YAML or NDJSON; - reads stdin")
    task_options.add(parser)
    group = parser.add_argument_group("afterwards")
    group.add_argument("--wait", action="store_true", help="until it has ended; exit code 1 if it did not succeed")
    group.add_argument("--follow", action="store_true", help="print what it writes, and wait")
    group.add_argument("--timeout", type=seconds, metavar="TIME", help="give up waiting (exit code 6)")
    group.add_argument("--idempotency-key", metavar="KEY", help="the same key again is the same submission")
    add_json(parser)
    add_connection(parser)


def directory_in_data(options: argparse.Namespace) -> None:
    """`--data` names volumes here and the daemon's directory in every other command; volumes have no slashes, so a path
    is what the other commands mean by it."""
    paths = [text for text in options.data or () if text.startswith(("/", "./", "../", "~"))]
    if paths:
        options.data_dir = options.data_dir or paths[-1]
        options.data = [text for text in options.data if text not in paths]


def body_of(options: argparse.Namespace, in_file: Any = None) -> Any:
    """What the command line means, as a body of POST /v1/schedule. `in_file`: what the file holds, if it was read already."""
    fields = task_options.spell(options)
    if options.file is not None:
        return _file_body(options, fields, in_file)
    if options.argv:
        fields["command"] = options.argv
    elif not fields.get("resources"):
        raise Usage("nothing to submit: give a command after --, a file, or resources to hold")
    if options.array and options.gang:
        raise Usage("--array and --gang cannot be had together; write a file")
    if options.gang is not None:
        return _gang(options, fields)
    return _array(options.array, fields) if options.array else fields


def _file_body(options: argparse.Namespace, fields: dict[str, Any], in_file: Any) -> Any:
    if options.argv:
        raise Usage("a file or a command, not both")
    if options.array or options.gang:
        raise Usage("--array and --gang go with a command; in a file they are written out")
    return task_files.merge(task_files.read(options.file) if in_file is None else in_file, fields)


def _gang(options: argparse.Namespace, fields: dict[str, Any]) -> dict[str, Any]:
    if options.gang < 1:
        raise Usage(f"--gang {options.gang}: at least 1")
    name = options.gang_id or fields.get("id") or f"gang-{secrets.token_hex(5)}"
    gang = {"id": name, "size": options.gang}
    if options.min_size is not None:
        gang["min_size"] = options.min_size
    return {"template": {"id": name, **fields, "gang": gang}, "count": options.gang}


def _array(text: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Indices 0 … N−1 are a count; any others are told one by one."""
    indices = _indices(text)
    if indices == list(range(len(indices))):
        return {"template": fields, "count": len(indices)}
    stem = fields.get("id") or f"array-{secrets.token_hex(5)}"
    return {"template": {**fields, "id": stem}, "tasks": [{"id": f"{stem}-{index}"} for index in indices]}


def _indices(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        try:
            chosen = range(whole(first), whole(last if dash else first) + 1, whole(step or "1"))
        except ValueError as error:
            raise Usage(f"--array {text}: it is written 0-99, 0-99:5 or 1,4,7") from error
        if not chosen or len(chosen) > 10_000_000:
            raise Usage(f"--array {text}: {part} names {len(chosen)} indices")
        found += chosen
    if len(set(found)) < len(found):
        raise Usage(f"--array {text}: an index is named twice")
    return found


def _submit(options: argparse.Namespace) -> int:
    directory_in_data(options)
    in_file = None if options.file is None else task_files.read(options.file)
    if (graph := graphs.graph_in(in_file)) is not None:
        return graphs.submit(options, graph, task_options.spell(options))
    body = body_of(options, in_file)
    if options.follow:
        _may_be_followed(options, body)
    client = client_of(options)
    answer = client.submit(body, key=options.idempotency_key)
    ids = ids_of(answer)
    if not options.json:
        _tell(ids, answer, follow=options.follow)
    if ids and _has_no_end(options, body):
        note("no command and no --duration: what it needs is held until hetsched cancel, or its end is said over HTTP")
    refused = refusals(answer)
    if not (options.wait or options.follow):
        if options.json:
            emit_json(answer)
        return exits.REFUSED if refused else exits.OK
    if not ids:
        return exits.REFUSED
    waiting = follow_to_end if options.follow else wait_for
    tasks = waiting(client, ids, options.timeout)
    if options.json:
        emit_json(tasks[0] if "id" in answer else {"tasks": tasks})
    failed = any(task["state"] != "succeeded" for task in tasks)
    return exits.TASK_FAILED if failed else exits.REFUSED if refused else exits.OK


def _has_no_end(options: argparse.Namespace, body: Any) -> bool:
    """Told of the command line's own tasks; who writes a file has thought of it."""
    task = body.get("template", body) if isinstance(body, dict) else {}
    return options.file is None and not {"command", "duration", "time_limit"} & set(task)


def _may_be_followed(options: argparse.Namespace, body: Any) -> None:
    """Asked before anything is submitted."""
    if not (options.argv or options.file):
        raise Usage("--follow: there is nothing to follow without a command")
    count = _count(body)
    if count != 1:
        raise Usage(f"--follow takes one task, these are {count}; submit them without, then hetsched logs -f ID")


def _count(body: Any) -> int:
    """Tasks in a body of any form; 1 for what only the daemon can judge."""
    if isinstance(body, list):
        return sum(map(_count, body))
    if isinstance(body, dict) and isinstance(body.get("tasks"), list):
        return len(body["tasks"])
    if isinstance(body, dict) and "template" in body and isinstance(body.get("count"), int):
        return int(body["count"])
    return 1


def _tell(ids: list[str], answer: dict[str, Any], *, follow: bool) -> None:
    if follow:
        note(f"submitted {' '.join(ids)}" if ids else "nothing was submitted")  # stdout belongs to the task
        return
    for task_id in ids:
        emit(task_id)
    if "id" in answer:
        where = answer.get("placement", {}).get("node")
        state = answer.get("state", "queued")
        lane = f" in the {answer.get('lane')} lane" if state == "queued" else ""
        note(state + (f" on {where}" if where else lane))


def refusals(answer: dict[str, Any]) -> int:
    """Tell which tasks were refused and why; how many."""
    for item in answer.get("rejected", ()):
        problem = item.get("problem", {})
        note(f"refused: task {item.get('index')}: {problem.get('detail', '')}")
        problem_lines(problem.get("errors", []), problem.get("detail", ""))
    return len(answer.get("rejected", ()))


def ids_of(answer: dict[str, Any]) -> list[str]:
    """The ids of all accepted tasks, whichever form the answer has."""
    if "id" in answer:
        return [answer["id"]]
    ids = answer.get("ids") or []
    if isinstance(ids, dict):
        stem, _, first = str(ids["first"]).rpartition("-")
        return [f"{stem}-{int(first) + i}" for i in range(int(ids["count"]))]
    return [task_id for task_id in ids if task_id is not None]


COMMANDS = {
    "submit": Command(_arguments, _submit, "hetsched submit [options] -- COMMAND…   |   hetsched submit [options] FILE")
}
