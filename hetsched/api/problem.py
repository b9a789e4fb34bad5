"""Errors become answers here and nowhere else: `application/problem+json` (RFC 9457), for every status from 400 on.

Promise: no traceback, no HTML, no empty error leaves the daemon; what is our own fault is a 500 with a number that is in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from hetsched.api.desk import DESK
from hetsched.errors import Elsewhere, HetschedError, Problem, Unavailable

log = logging.getLogger("hetsched.api")

MEDIA_TYPE = "application/problem+json"
LEADER = "Hetsched-Leader"
"""On answers of a daemon that does not lead: the address of the one that does."""
EPOCH = "Hetsched-Epoch"
"""Of the leader that answers: whoever has heard a higher one of the same cell is told something old."""
CELL = "Hetsched-Cell"
"""Whose leader or standby answers, where the cluster is parted."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one middleware: every exception of a handler becomes an answer."""
    try:
        return await handler(request)
    except Elsewhere as error:
        return elsewhere(request, error)
    except HetschedError as error:
        return refuse(error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _from_aiohttp(request, error)
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception:
        return refuse(fault(log, f"{request.method} {request.path}"))


def fault(log: logging.Logger, what: str) -> HetschedError:
    """For whoever asked, of the exception that is being handled: it is ours, and in the log under the number that is told."""
    number = secrets.token_hex(4)
    log.exception("%s failed, number %s", what, number)
    return HetschedError(f"this is a fault of the daemon, not of the request; its log has it as {number}")


def elsewhere(request: web.Request, error: Elsewhere) -> web.Response:
    """The same call at the daemon that leads the task's cell; 503 while nobody knows who that is."""
    cells = request.app[DESK].cells
    error.url = "" if cells is None else cells.url_of(error.cell)
    answer = refuse(error)
    if error.url:
        answer.headers["Location"] = error.url + request.raw_path
    return answer


def refuse(error: HetschedError) -> web.Response:
    """The answer for an error of the tree."""
    return problem_response(error.status, error.body(), headers_of(error))


def headers_of(error: HetschedError) -> dict[str, str]:
    """Retry-After, the leader's address and WWW-Authenticate, where they belong."""
    headers = {}
    if isinstance(error, Unavailable) and error.leader:
        headers[LEADER] = error.leader
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    elif error.status == 503:
        headers["Retry-After"] = "1"
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def problem_response(status: int, body: dict[str, Any], headers: dict[str, str]) -> web.Response:
    """A problem as it goes out."""
    return web.Response(status=status, body=msgspec.json.encode(body), content_type=MEDIA_TYPE, headers=headers)


def plain(status: int, kind: str, title: str, detail: str) -> Problem:
    """A problem of HTTP itself, which has no code in the error tree (405, 408, 421 …)."""
    return Problem(detail, code="malformed", status=status, title=title, type=f"urn:hetsched:problem:{kind}")


def _from_aiohttp(request: web.Request, error: web.HTTPException) -> web.Response:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods - {"HEAD", "OPTIONS"}))
        fault = plain(405, "method", "The method does not exist here", f"{request.path} answers {allowed}")
        answer = refuse(fault)
        answer.headers["Allow"] = error.headers["Allow"]
        return answer
    if error.status == 404:
        return refuse(
            plain(404, "not_found", "There is no such path", f"{request.path} is none; /openapi.json lists all")
        )
    return refuse(plain(error.status, "http", error.reason, error.text or error.reason))
