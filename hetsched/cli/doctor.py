"""`doctor`: one line a check, each with its fix where something is to be done."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hetsched.cli import exits
from hetsched.cli.offline import add_place, place_of
from hetsched.cli.output import emit, emit_json, one_line
from hetsched.cli.table import Command

if TYPE_CHECKING:
    from hetsched.doctor import Check


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", metavar="HOST:PORT", help="where a daemon would listen (default: as configured)")
    add_place(parser)


def _doctor(options: argparse.Namespace) -> int:
    """TASK_FAILED, which is 1, where a check has failed."""
    from hetsched.doctor import Verdict, examine

    place = place_of(options)
    found: list[Check] = []
    for check in examine(place.config, place.data_dir, place.url, options.listen or place.config.server.listen):
        found.append(check)
        if not options.json:
            _tell(check)
    failed = [check.name for check in found if check.verdict is Verdict.FAIL]
    if options.json:
        checks = [{"name": c.name, "verdict": str(c.verdict), "found": c.found, "fix": c.fix} for c in found]
        emit_json({"ok": not failed, "checks": checks})
    return exits.TASK_FAILED if failed else exits.OK


def _tell(check: Check) -> None:
    emit(one_line(f"{check.verdict:<4}  {check.name}: {check.found}"))
    if check.fix:
        emit(f"      {one_line(check.fix)}")


COMMANDS = {"doctor": Command(_arguments, _doctor)}
