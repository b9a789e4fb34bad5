"""One line of the doctor's report."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """warn: it works, with less than it could or at a risk. fail: a daemon or an agent would not start, or would lose something."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """`found`: what is there. `fix`: what to do; "" where it is ok."""

    name: str
    verdict: Verdict
    found: str
    fix: str = ""


def ok(name: str, found: str) -> Check:
    """As it should be."""
    return Check(name, Verdict.OK, found)


def warn(name: str, found: str, fix: str) -> Check:
    """It works, but."""
    return Check(name, Verdict.WARN, found, fix)


def fail(name: str, found: str, fix: str) -> Check:
    """It does not."""
    return Check(name, Verdict.FAIL, found, fix)
