"""Small pieces of the state as JSON: placements, attempts, amounts, times. Shared by events, replies and the view."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hetsched.policy.feedback import Settings
from hetsched.scheduler.attempts import Attempt
from hetsched.scheduler.uses import Use


def iso(ns: int) -> str:
    """Nanoseconds since 1970 as RFC 3339, UTC, microseconds."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat().replace("+00:00", "Z")


def placement_of(attempt: Attempt) -> dict[str, Any]:
    """Where an attempt is or was."""
    return {
        **placement_json(attempt.node, attempt.devices),
        "attempt": attempt.number,
        "lane": attempt.lane,
    }


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    """One attempt's story."""
    return {
        **placement_of(attempt),
        "placed_at": iso(attempt.placed_ns),
        "started_at": iso(attempt.started_ns) if attempt.started_ns else None,
        "ended_at": iso(attempt.ended_ns) if attempt.ended_ns else None,
        "outcome": attempt.outcome or None,
        "reason": attempt.reason or None,
        "exit_code": attempt.exit_code,
    }


def settings_json(settings: Settings) -> dict[str, Any]:
    """What the feedback controller has turned: parts as ratios."""
    return {
        "gang_share": settings.gang_share_milli / 1000,
        "overcommit": settings.overcommit_milli / 1000,
        "sharers": settings.sharers,
    }


def use_json(use: Use) -> dict[str, Any]:
    """What a live attempt uses, as far as it was measured."""
    measured = {"cpu": use.cpu_milli / 1000, "memory": use.memory_bytes, "utilization": use.utilization_milli / 1000}
    return {name: amount for name, amount in measured.items() if amount >= 0}


def amounts_json(amounts: dict[str, int]) -> dict[str, Any]:
    """Amounts by resource in the contract's units: cores, bytes, devices."""
    return {name: amount if name == "memory" else amount / 1000 for name, amount in amounts.items()}


def placement_json(node: str, devices: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """A placement as JSON: shares in thousandths."""
    return {"node": node, "devices": [{"id": ident, "share": share} for ident, share in devices]}
