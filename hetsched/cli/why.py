"""`why`: the reason that counts first, the evidence below it, what would help last."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hetsched.cli import exits, words
from hetsched.cli.output import emit, emit_json, one_line, pairs, table
from hetsched.cli.parser import add_reading, client_of
from hetsched.cli.table import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    add_reading(parser)


def _why(options: argparse.Namespace) -> int:
    answer = client_of(options).explain(options.id)
    emit_json(answer) if options.json else tell_explanation(answer)
    return exits.OK


def tell_explanation(answer: dict[str, Any]) -> None:
    """For people."""
    state, reason = answer.get("state", ""), answer.get("reason", "")
    emit(one_line(f"{answer.get('id', '')} is {state}" + (f": {reason}" if reason not in ("", state) else "")))
    emit("  " + one_line(answer.get("detail", "")))
    for reason in answer.get("secondary") or ():
        emit("  also " + one_line(f"{reason.get('reason', '')}: {reason.get('detail', '')}"))
    _evidence(answer)
    _constraint(answer.get("constraint"))
    _claim(answer.get("claim"))
    if answer.get("run_time"):
        emit("  " + one_line(_run_time(answer["run_time"])))
    _remedies(answer.get("remedies") or [])
    for missing in answer.get("left_out") or ():
        emit("  " + one_line(missing["detail"]))
    if answer.get("terms"):
        emit()
        table(("TERM", "WEIGHT", "HERE", "BEST FOR A NODE WHERE IT IS 1"), map(_term, answer["terms"]))
        _price(answer["terms"])
    if answer.get("nodes"):
        emit()
        table(("NODES", "RULED OUT BY"), [(count, why.replace("_", " ")) for why, count in answer["nodes"].items()])


def _run_time(found: dict[str, Any]) -> str:
    if found["source"] == "learned":
        return f"expected to run {found['p50']:g} s (9 in 10 no longer than {found['p90']:g} s), as learned"
    return f"expected to run {found['p50']:g} s, by its estimate"


def _term(row: dict[str, Any]) -> tuple[object, ...]:
    here = row.get("value")
    name = f"{row['term']} {row['preset']}" if "preset" in row else row["term"]
    return name, f"{row['weight']:g}", "-" if here is None else f"{here:.2f}", f"{row['what']} ({row['source']})"


def _price(rows: list[dict[str, Any]]) -> None:
    """What the placement takes off the worth of the node's free room, part by part."""
    for row in rows:
        if row.get("parts"):
            emit()
            lines = [(part["part"], f"{part['value']:g}", part["what"]) for part in row["parts"]]
            lines.append(("in all", f"{row['loses']:g}", "by which nodes are compared, in steps of 20"))
            table(("PRICE", "1/1000 DEVICE", "WHAT THE NODE'S FREE ROOM IS WORTH LESS BY IT"), lines)


def _evidence(answer: dict[str, Any]) -> None:
    rows: list[tuple[str, object]] = [(name.replace("_", " "), answer.get(name)) for name in _SHOWN]
    if answer.get("order"):
        rows.append(("order", _order(answer["order"])))
    if answer.get("eta"):
        rows.append(("starts", words.eta(answer["eta"])))
    elif answer.get("eta_reason"):
        rows.append(("starts", f"no start is known: {answer['eta_reason']}"))
    for kind, free in (answer.get("free") or {}).items():
        most = f"{free['largest_on_one_node']:g} whole ones on one node"
        rows.append((kind, f"asks {free['asked']:g}, {free['free']:g} free, at most {most}"))
    for sight in answer.get("history") or ():
        if sight["count"] > 1:
            rows.append(
                (f"{sight['reason']} seen", f"{sight['count']} times since {words.moment(sight['first_seen'])}")
            )
    pairs(("  " + name, found) for name, found in rows)


def _order(found: dict[str, Any]) -> str:
    """What the configured order compares, in its order."""
    said = [f"{found['name']}: {found['qos']}"]
    if found.get("is_owed"):
        said.append("guaranteed")
    said += map(_queue, found.get("queues") or ())
    if found.get("terms"):
        said.append(" + ".join(f"{one['weight']:g} {one['term']} {_known(one['value'])}" for one in found["terms"]))
    priority = found["priority"]
    said.append(f"priority {priority['own']} + {priority['age']} by age")
    said.append(f"deadline {words.moment(found['deadline'])}" if found["deadline"] else "no deadline")
    return ", ".join([*said, f"number {found['sequence']}"])


def _queue(one: dict[str, Any]) -> str:
    share = f"share {one['share']:.3g}" + (f" of {one['resource']}" if one["resource"] else "")
    return f"queue {one['queue']} {one['share_over_weight']:.3g} ({share} over weight {one['weight']})"


def _known(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3g}"


def _constraint(found: dict[str, Any] | None) -> None:
    if found:
        near = found.get("nearest")
        emit("  " + one_line(found.get("detail", "") + (f"; nearest that would fit: {near['detail']}" if near else "")))


def _claim(claim: dict[str, Any] | None) -> None:
    if claim:
        emit("  " + one_line(f"claim on {claim.get('node')}: {claim.get('proof', '')}"))
        emit("  " + one_line(f"its price: {claim.get('price_device_seconds', 0):g} device seconds of lost work"))


def _remedies(remedies: list[dict[str, Any]]) -> None:
    """Tried by the daemon on a copy, cheapest first."""
    if remedies:
        emit()
        emit("What would help (each was tried on a copy of the scheduler):")
    for number, remedy in enumerate(remedies, 1):
        emit(one_line(f"{number}. {remedy.get('detail', '')}"))
        how = remedy.get("how", "")
        if remedy.get("change"):
            how += ": " + json.dumps(remedy["change"], ensure_ascii=False)
        if remedy.get("by") != "nobody":
            emit("   " + one_line(how))


_SHOWN = ("position", "nodes_that_fit", "nodes_that_could_ever")

COMMANDS = {"why": Command(_arguments, _why)}
