"""Learned run times per type of task, device model and size: shown, taken along, brought in."""

from __future__ import annotations

import argparse
from typing import Any

from hetsched.cli import exits, task_files
from hetsched.cli.output import emit, emit_json, pairs, table
from hetsched.cli.parser import Usage, add_reading, client_of
from hetsched.cli.table import Command
from hetsched.errors import NotFound

COLUMNS = ("TYPE", "SIZE", "MODEL", "RUNS", "P50", "P90", "ERROR", "ESTIMATES", "USED")


def _list(options: argparse.Namespace) -> int:
    answer = client_of(options).profiles()
    emit_json(answer) if options.json else table(COLUMNS, map(_row, answer["profiles"]))
    return exits.OK


def _row(profile: dict[str, Any]) -> tuple[object, ...]:
    return (
        profile["type"],
        profile["size"],
        profile["model"] or "-",
        profile["runs"],
        _seconds(profile["p50"]),
        _seconds(profile["p90"]),
        _percent(profile["error"]),
        _percent(profile["estimate_error"]),
        "instead of estimates" if profile["replaces_estimate"] else "not yet",
    )


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="TYPE", help="kind of task: training, inference, ...")
    add_reading(parser)


def _show(options: argparse.Namespace) -> int:
    found = client_of(options).profiles(options.type, times=True)
    if not found["profiles"]:
        raise NotFound(f"nothing is learned of tasks of type {options.type}")
    if options.json:
        emit_json(found)
        return exits.OK
    for profile in found["profiles"]:
        times = profile.pop("times")
        pairs((name.replace("_", " "), "-" if value is None else value) for name, value in profile.items())
        emit(f"last run times     {' '.join(map(_seconds, times[-16:]))}\n")
    return exits.OK


def _export(options: argparse.Namespace) -> int:
    emit_json(client_of(options).profiles(times=True))
    return exits.OK


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what `profile export` wrote; - is standard input")
    add_reading(parser)


def _import(options: argparse.Namespace) -> int:
    said = task_files.read(options.file)
    if not isinstance(said, dict) or not isinstance(said.get("profiles"), list):
        raise Usage(f"{options.file} is not what hetsched profile export writes: it has no list of profiles")
    answer = client_of(options).import_profiles(said["profiles"])
    emit_json(answer) if options.json else emit(f"imported: {answer['imported']}")
    return exits.OK


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}s"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f} %"


COMMANDS = {
    "profile list": Command(add_reading, _list),
    "profile show": Command(_show_arguments, _show),
    "profile export": Command(add_reading, _export),
    "profile import": Command(_import_arguments, _import),
}
