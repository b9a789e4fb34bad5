"""An error, told to a person: what was refused, field by field, and what to do where we know it."""

from __future__ import annotations

from hetsched.cli.output import note
from hetsched.client import Unreachable
from hetsched.errors import HetschedError, Problem, Unauthenticated, Unavailable


def explain(error: Exception) -> None:
    """To stderr."""
    detail = error.detail if isinstance(error, HetschedError) else str(error)
    if isinstance(error, HetschedError) and not isinstance(error, Unreachable) and error.status < 500:
        note(f"hetsched: refused: {detail}")
    else:
        note(f"hetsched: {detail}")
    if isinstance(error, Problem):
        problem_lines(error.errors, detail)
    elif isinstance(error, Unauthenticated):
        note("  give the token with --token or HETSCHED_TOKEN, or name the daemon's data directory with --data")
    elif isinstance(error, Unreachable) and not error.sent:
        note("  is it running? `hetsched serve` starts one here; --url or HETSCHED_URL names another")
    elif isinstance(error, Unavailable) and error.leader:
        note(f"  the leader is {error.leader}")


def problem_lines(errors: list[dict[str, str]], said: str = "") -> None:
    """Each fault with its place, and the option that would set it."""
    for fault in errors:
        pointer, rule = fault.get("pointer", ""), fault.get("detail", "")
        if rule and (len(errors) > 1 or rule not in said):
            note(f"  {pointer or '/'}: {rule}")
