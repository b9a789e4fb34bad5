"""Files that the command line sends: tasks, graphs, profiles; JSON, YAML (one document or many) or NDJSON, `-` for stdin.

A file is read as what it looks like, by its ending; JSON is a subset of YAML, so a file that says neither is read as YAML. All of them go
through the daemon's own reader of JSON: what that refuses (NaN, infinity, a key said twice) is told before anything is sent, with its place.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

from hetsched.cli.parser import Usage
from hetsched.errors import Problem


def read(name: str) -> Any:
    """What it holds: a task, a list of tasks, one of the array forms, a graph; profiles."""
    text = _text(name)
    if not text.strip():
        raise Usage(f"{name} is empty")
    if text.startswith("#!"):
        raise Usage(
            f"{name} is a script, not a description of tasks: hetsched submit [options] -- /bin/sh PATH-ON-THE-NODE"
        )
    try:
        return _parse(name, text)
    except RecursionError:
        raise Usage(f"{name}: is nested too deep") from None
    except (ValueError, OverflowError) as error:
        raise Usage(f"{name}: {error}") from error


def merge(body: Any, fields: dict[str, Any]) -> Any:
    """`body` with `fields` set in each of its tasks; an array's are set in its template."""
    if not fields:
        return body
    if isinstance(body, list):
        return [merge(item, fields) for item in body]
    if not isinstance(body, dict):
        return body
    if "template" in body:
        return {**body, "template": merge(body["template"], fields)}
    if isinstance(body.get("tasks"), list):
        return {**body, "tasks": merge(body["tasks"], fields)}
    return {**body, **{name: _joined(body.get(name), value) for name, value in fields.items()}}


def _joined(old: Any, new: Any) -> Any:
    return {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Usage(f"{name} is no UTF-8 text") from error
    except OSError as error:
        hint = "; a command is written after --" if not Path(name).suffix else ""
        raise Usage(f"{name}: {error.strerror}{hint}") from error


def _parse(name: str, text: str) -> Any:
    ending = Path(name).suffix.lower()
    if ending in (".ndjson", ".jsonl"):
        return [_json(line, f"line {n}") for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if ending == ".json":
        return _json(text)
    return _yaml(text)


def _json(text: str, *where: str) -> Any:
    from hetsched.model.strict_json import parse_json  # a twentieth of a second, for those who read a file

    try:
        return parse_json(text.encode())
    except Problem as problem:
        place, detail = problem.errors[0]["pointer"], problem.errors[0]["detail"]
        raise ValueError(": ".join(filter(None, (*where, place, detail)))) from None


def _yaml(text: str) -> Any:
    import yaml

    try:
        documents = [_plain(document) for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return _json(json.dumps(documents[0] if len(documents) == 1 else documents))


def _plain(value: Any) -> Any:
    """YAML reads times by itself; the daemon wants them as text. What only YAML knows is refused."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"holds {type(value).__name__}, which JSON does not have")
    return value
