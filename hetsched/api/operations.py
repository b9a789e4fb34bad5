"""What operators, probes and people meet first: health, readiness, version, metrics, the description, and the page at `/`."""

from __future__ import annotations

import platform

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from hetsched import __version__
from hetsched.api.call import Call
from hetsched.api.openapi import document
from hetsched.api.page import PAGE
from hetsched.errors import Unavailable
from hetsched.wire import PROTOCOL


async def healthz(call: Call) -> web.Response:
    """The process lives and its loop turns."""
    safe = call.desk.safe
    told = {} if safe is None else {"reason": safe.story}
    return call.answer({"status": "ok", "state": call.desk.state, **told})


async def readyz(call: Call) -> web.Response:
    """200 when it serves; 503 while it recovers or stops, in safe mode, and while a submission would be refused because of the store."""
    if call.desk.safe is not None:
        raise Unavailable(call.desk.safe.story, retry_after=30)
    daemon = call.desk.ready()
    stats = daemon.store.stats()
    if not stats.admit:
        raise Unavailable(f"no new tasks are taken: {stats.reason}", retry_after=5)
    return call.answer({"status": "ready", "epoch": daemon.epoch})


async def version(call: Call) -> web.Response:
    """What this is."""
    return call.answer(
        {
            "name": "hetsched",
            "version": __version__,
            "api": "v1",
            "protocol": PROTOCOL,
            "python": platform.python_version(),
        }
    )


async def metrics(call: Call) -> web.Response:
    """For Prometheus."""
    return web.Response(body=call.reader.metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def openapi(call: Call) -> web.Response:
    """OpenAPI 3.1 of all this."""
    return call.answer(document())


async def page(call: Call) -> web.Response:
    """For people who open the address in a browser."""
    return web.Response(
        text=PAGE,
        content_type="text/html",
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )
