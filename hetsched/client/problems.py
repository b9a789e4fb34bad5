"""From an answer that is no success to an exception of the one error tree (`hetsched.errors`)."""

from __future__ import annotations

import json
from email.message import Message
from typing import Any

from hetsched.errors import (
    Conflict,
    Forbidden,
    Gone,
    HetschedError,
    NotFound,
    Problem,
    TooBusy,
    TooLarge,
    Unauthenticated,
    Unavailable,
)


class Unreachable(HetschedError):
    """Nobody answered. `sent`: the request may have reached the daemon, so what became of it is unknown."""

    code = "unavailable"

    def __init__(self, detail: str = "", *, sent: bool = False) -> None:
        super().__init__(detail)
        self.sent = sent


_PLAIN: dict[int, type[HetschedError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
}


def from_answer(status: int, raw: bytes, headers: Message) -> HetschedError:
    """The exception for an answer of status >= 300. Never fails: what is no problem object is quoted."""
    body = _problem_body(status, raw)
    detail = str(body.get("detail") or body.get("title") or f"status {status}")
    if status == 429:
        return TooBusy(detail, retry_after=_retry_after_s(headers))
    if status == 503:
        return Unavailable(detail, leader=body.get("leader"), retry_after=_retry_after_s(headers))
    if status in _PLAIN:
        return _PLAIN[status](detail)
    return Problem(
        detail,
        errors=[e for e in body.get("errors", ()) if isinstance(e, dict)],
        status=status,
        title=str(body.get("title", "Refused")),
        type=str(body.get("type", "about:blank")),
    )


def _problem_body(status: int, raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    text = raw[:200].decode("utf-8", "replace").strip()
    return {"detail": f"status {status}: {text}" if text else f"status {status}"}


def _retry_after_s(headers: Message) -> float:
    try:
        return min(max(float(headers.get("Retry-After", "1")), 0.0), 60.0)
    except ValueError:
        return 1.0
