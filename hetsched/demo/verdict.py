"""The end of the demo: what became of every acknowledged task, and whether each promise was held. Everything is asked anew here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hetsched.client import ENDED, Client
from hetsched.demo import proof
from hetsched.demo.board import Board
from hetsched.demo.script import Script
from hetsched.demo.workload import EXPECTED, QOS


def judge(client: Client, script: Script, board: Board, lines: Path) -> dict[str, Any]:
    """The summary. `ok`: every promise held; `broken`: the ones that were not, in words."""
    tasks = {task["id"]: task for task in client.tasks()}
    told = proof.read(lines)
    succeeded = [task_id for task_id in script.processes if tasks.get(task_id, {}).get("state") == "succeeded"]
    again = [client.task(task_id) for task_id, task in tasks.items() if task["attempt"] > 1]
    summary: dict[str, Any] = {
        "submitted": len(script.ids),
        "states": dict(Counter(task["state"] for task in tasks.values())),
        "qos": {qos: dict(Counter(t["state"] for t in tasks.values() if t["qos"] == qos)) for qos in QOS},
        "processes": len(script.processes),
        "kinds": dict(script.kinds),
        "killed": script.killed,
        "preemptions": sum(task["preemptions"] for task in again),
        "attempts": sum(task["attempt"] for task in tasks.values()),
        "again": dict(Counter(_why_again(task) for task in again)),
        "lost": _lost(script.ids, tasks),
        "unasked": sorted(set(tasks) - set(script.ids)),
        "unexpected": _unexpected(script.ids, tasks),
        "twice": proof.twice(told),
        "unfinished": proof.unfinished(told, succeeded),
        "ledger": {"checks": board.ledger.checks, "compared": board.ledger.compared, "faults": board.ledger.faults[:5]},
        "all_free": board.ledger.all_free(),
        "seconds": round(board.elapsed_s, 1),
    }
    summary["broken"] = _broken(summary, script)
    summary["ok"] = not summary["broken"]
    return summary


def _lost(ids: list[str], tasks: dict[str, dict[str, Any]]) -> list[str]:
    """Acknowledged, and yet unknown or never ended."""
    return [task_id for task_id in ids if tasks.get(task_id, {}).get("state") not in ENDED]


def _unexpected(ids: list[str], tasks: dict[str, dict[str, Any]]) -> list[str]:
    ends = ((task_id, EXPECTED.get(task_id, "succeeded")) for task_id in ids if task_id in tasks)
    return [
        f"{name} {tasks[name]['state']}: {tasks[name].get('reason')}"
        for name, end in ends
        if tasks[name]["state"] != end
    ]


def _why_again(task: dict[str, Any]) -> str:
    """Why its first attempt was not its last."""
    first = task["attempts"][0]
    return str(first["outcome"] if first["outcome"] in ("preempted", "lost") else first["reason"] or first["outcome"])


def _broken(summary: dict[str, Any], script: Script) -> list[str]:
    ledger = summary["ledger"]
    promises = {
        f"lost: {summary['lost'][:5]}": not summary["lost"],
        f"tasks that nobody submitted: {summary['unasked'][:5]}": not summary["unasked"],
        f"ended otherwise than they should: {summary['unexpected'][:5]}": not summary["unexpected"],
        f"run twice at once: {summary['twice'][:5]}": not summary["twice"],
        f"succeeded without an end of their process: {summary['unfinished'][:5]}": not summary["unfinished"],
        f"the device ledger: {ledger['faults'][:2]}": not ledger["faults"],
        "the device ledger never stood still long enough to be compared": ledger["compared"] > 0,
        "devices are still held although every task has ended": summary["all_free"],
        "no task was preempted": summary["preemptions"] > 0,
        "a critical task was not placed within 20 s": all(answer.get("placement") for answer in script.urgent),
    }
    return [text for text, held in promises.items() if not held]


def lines_of(summary: dict[str, Any]) -> list[str]:
    """The summary for people."""
    ledger = summary["ledger"]
    told: list[tuple[str, object]] = [
        ("submitted", f"{summary['submitted']} tasks, {summary['processes']} of them real processes"),
        ("among them", _counts(summary["kinds"])),
        ("ended", _counts(summary["states"])),
        *((f"  {qos}", _counts(states)) for qos, states in summary["qos"].items()),
        ("attempts", f"{summary['attempts']}; more than one because of: {_counts(summary['again']) or 'nothing'}"),
        ("preemptions", summary["preemptions"]),
        ("killed with -9", f"{' and '.join(summary['killed'])}, and started again"),
        ("lost", len(summary["lost"])),
        ("run twice at once", f"{len(summary['twice'])} (by the processes' own lines and locks)"),
        ("device ledger", f"{len(ledger['faults'])} faults in {ledger['checks']} looks, {ledger['compared']} compared"),
        ("devices held", "none" if summary["all_free"] else "SOME, although every task has ended"),
        ("took", f"{summary['seconds']} s"),
        *(("BROKEN", text) for text in summary["broken"]),
    ]
    return [f"{name:<19}{text}" for name, text in told] + [_last(summary)]


def _last(summary: dict[str, Any]) -> str:
    return "every promise was held" if summary["ok"] else f"{len(summary['broken'])} promises were broken"


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items(), key=lambda item: -item[1]))
