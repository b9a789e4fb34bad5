"""`status`: how the daemon is, in one look; what is wrong and the way out where something is."""

from __future__ import annotations

import argparse
from typing import Any

from hetsched.cli import exits, words
from hetsched.cli.output import emit, emit_json, note, one_line, pairs
from hetsched.cli.parser import add_reading, client_of
from hetsched.cli.table import Command
from hetsched.errors import Unavailable


def _status(options: argparse.Namespace) -> int:
    """OK where it serves, REFUSED in safe mode, UNREACHABLE where it does not answer reads."""
    client = client_of(options, patience_s=0.0)
    health = client.health()
    told: dict[str, Any] = {"url": client.url, "state": health["state"], "reason": health.get("reason", "")}
    try:
        told["cluster"] = client.cluster()
    except Unavailable as error:
        told["cluster"] = None
        told["reason"] = error.detail
    emit_json(told) if options.json else _tell(told)
    if told["cluster"] is None:
        return exits.UNREACHABLE
    return exits.REFUSED if health["state"] == "safe" else exits.OK


def _tell(told: dict[str, Any]) -> None:
    emit(one_line(f"{told['url']} is {_IN_WORDS.get(told['state'], told['state'])}"))
    cluster = told["cluster"]
    if cluster is None:
        note(f"  {told['reason']}")
        return
    safe = cluster.get("safe_mode")
    if safe:
        emit("  " + one_line(told["reason"]))
        emit("  to mend it: " + one_line(safe["fix"]))
    pairs(
        ("  " + name, found)
        for name, found in (
            ("cluster", cluster.get("cluster")),
            ("cell", cluster.get("cell")),
            ("leader", cluster.get("leader")),
            ("epoch", cluster.get("epoch")),
            ("durability", cluster.get("durability")),
            ("standbys", _standbys(cluster.get("standbys") or [])),
            ("agents", cluster.get("agents_connected")),
            ("tasks", _counts(cluster.get("tasks") or {})),
            ("used", words.amounts(cluster.get("used") or {})),
            ("used aside", words.amounts(cluster.get("used_aside") or {})),
            ("capacity", words.amounts(cluster.get("capacity") or {})),
        )
    )
    for refused in cluster.get("agents_refused") or ():
        emit("  " + one_line(f"turned away: the agent of {refused['node']}: {refused['reason']}"))


def _counts(tasks: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in tasks.items() if count)


def _standbys(standbys: list[dict[str, Any]]) -> str:
    return ", ".join(f"{found['name']} at {found['url']}, {found['lag_frames']} frames behind" for found in standbys)


_IN_WORDS = {"ready": "serving", "safe": "in safe mode: it answers reads and changes nothing"}

COMMANDS = {"status": Command(add_reading, _status)}
