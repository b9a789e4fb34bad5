"""`replay`: the state at any moment that the journal reaches, and why it was decided as it was."""

from __future__ import annotations

import argparse
import asyncio
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hetsched.cli import exits, words
from hetsched.cli.offline import Place, add_place, place_of
from hetsched.cli.output import emit, emit_json, note, one_line, pairs, table
from hetsched.cli.parser import Usage, whole
from hetsched.cli.table import Command
from hetsched.cli.why import tell_explanation

if TYPE_CHECKING:
    from hetsched.daemon.replay import Moment


def _arguments(parser: argparse.ArgumentParser) -> None:
    when = "RFC 3339 (local without a zone), seconds since 1970, or a frame's stream id (default: the journal's end)"
    parser.add_argument("--at", metavar="TIME", help=when)
    parser.add_argument(
        "--task", metavar="ID", help="why it waited or was where it was, and how its last placing was decided"
    )
    add_place(parser)


def _replay(options: argparse.Namespace) -> int:
    if options.at is None and options.task is None:
        raise Usage("give --at TIME, --task ID, or both")
    told = asyncio.run(_travel(place_of(options), options.at, options.task))
    emit_json(told) if options.json else _tell(told)
    return exits.OK


async def _travel(place: Place, at: str | None, task: str | None) -> dict[str, Any]:
    from hetsched.daemon.replay import replay

    async with place.open() as archive:
        return await replay(archive, place.config, _moment(at), task)


def _moment(at: str | None) -> Moment:
    from hetsched.daemon.replay import Moment

    if at is None:
        return Moment()
    frame = re.fullmatch(r"(\d+)-(\d+)", at)
    try:
        if frame:
            return Moment(frame=(whole(frame[1]), whole(frame[2])))
        seconds = float(at) if re.fullmatch(r"\d+(\.\d+)?", at) else datetime.fromisoformat(at).timestamp()
        return Moment(at_ns=round(seconds * 1e9))
    except (ValueError, OverflowError):
        raise Usage(f"--at {at!r} is no time: 2026-11-30T12:00:00Z, seconds since 1970, or a frame like 5-42") from None


def _tell(told: dict[str, Any]) -> None:
    pairs(
        [
            ("at", f"{words.moment(told['at'])}, after frame {told['frame']} of {words.moment(told['frame_at'])}"),
            ("read from", told["read_from"]),
            ("state", told["digest"]),
            ("tasks", words.value(told["tasks"])),
            ("waiting", words.value(told["pending"])),
            ("used", words.amounts(told["used"])),
            ("capacity", words.amounts(told["capacity"])),
        ]
    )
    if told["fault"]:
        note(f"this is as far as it goes: {told['fault']}")
    for fact in told.get("turn", ()):
        emit("  " + _fact(fact))
    if "task" in told:
        _tell_task(told["task"])


def _tell_task(task: dict[str, Any]) -> None:
    emit()
    table(("FRAME", "AT", "WHAT"), ((f["frame"], words.moment(f["at"]), _fact(f)) for f in task["timeline"]))
    if task["explain"] is not None:
        emit()
        tell_explanation(task["explain"])
    decision = task["decision"]
    if decision is None:
        return
    emit()
    emit(one_line(f"decided in frame {decision['frame']}: {_fact(decision)}"))
    emit("  before: " + one_line(f"{decision['before']['reason']}: {decision['before']['detail']}"))
    table(("NODE", "FITTED", "CHOICE"), (_node(one, decision["choices"]) for one in decision["nodes"]))


def _node(one: dict[str, Any], choices: list[dict[str, Any]]) -> tuple[object, ...]:
    place = next((number for number, choice in enumerate(choices, 1) if choice["node"] == one["node"]), "")
    return one["node"], "yes" if one["fits"] else one["why"] or "no", place


def _fact(fact: dict[str, Any]) -> str:
    rest = {name: value for name, value in fact.items() if name in _SHOWN and value not in (None, [], "")}
    return one_line(f"{fact['fact']} {words.value(rest)}")


_SHOWN = (
    "task",
    "attempt",
    "node",
    "devices",
    "lane",
    "reason",
    "state",
    "by",
    "victims",
    "price_device_seconds",
    "priority",
)

COMMANDS = {"replay": Command(_arguments, _replay)}
