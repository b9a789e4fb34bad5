"""Times in bodies: a deadline is seconds from submission or a moment after RFC 3339."""

from __future__ import annotations

import calendar
import datetime
import re
import time

from hetsched.model import reader
from hetsched.model.reader import Faults
from hetsched.quantity import type_name

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))"
)
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_seconds = reader.seconds()


class TimeError(ValueError):
    """The text is no RFC 3339 time; it says why."""


def read_deadline(faults: Faults, pointer: str, value: object) -> tuple[int, bool]:
    """Reader of a deadline: (nanoseconds, absolute): from submission, or since 1970 where absolute."""
    if isinstance(value, datetime.datetime):  # YAML makes these of plain times
        value = value.isoformat() if value.tzinfo else value.isoformat() + "Z"
    if isinstance(value, str):
        try:
            return parse_rfc3339(value), True
        except TimeError as error:
            faults.add(pointer, str(error))
            return 0, True
    if isinstance(value, bool) or not isinstance(value, int | float):
        faults.add(pointer, f"must be seconds from submission or an RFC 3339 time, not {type_name(value)}")
        return 0, False
    return round(_seconds(faults, pointer, value) * 1e9), False


def parse_rfc3339(text: str) -> int:
    """Nanoseconds since 1970-01-01T00:00:00Z. Raises TimeError."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise TimeError('must be an RFC 3339 time such as "2026-01-31T12:00:00Z", with its offset')
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        raise TimeError(f"must be a year from {_FIRST_YEAR} to {_LAST_YEAR}")
    try:
        moment = datetime.datetime(year, month, day, hour, minute, min(second, 59))
    except ValueError:
        raise TimeError("is no day or hour of the calendar") from None
    if second > 60:
        raise TimeError("is no day or hour of the calendar")
    whole = calendar.timegm(moment.timetuple()) + (second - min(second, 59)) - _offset_seconds(found)
    if whole < 0:
        raise TimeError(f"must be a year from {_FIRST_YEAR} to {_LAST_YEAR}")
    return whole * 1_000_000_000 + int((found[7] or "").ljust(9, "0"))


def _offset_seconds(found: re.Match[str]) -> int:
    if found[8]:
        return 0
    hours, minutes = int(found[10]), int(found[11])
    if hours > 23 or minutes > 59:
        raise TimeError("has an offset that is none")
    return (hours * 3600 + minutes * 60) * (1 if found[9] == "+" else -1)


def render_rfc3339(nanoseconds: int) -> str:
    """The moment as RFC 3339 in UTC, with a fraction only where there is one."""
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    parts = time.gmtime(whole)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", parts)
    return text + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"
