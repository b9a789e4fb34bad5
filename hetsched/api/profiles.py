"""Learned run times: listed, exported, imported."""

from __future__ import annotations

from aiohttp import web

from hetsched.api import schemas
from hetsched.api.call import Call
from hetsched.scheduler.messages import ImportProfiles
from hetsched.scheduler.view_profiles import read_profiles


async def listing(call: Call) -> web.Response:
    """All profiles, or those of one `type` of task; with `times` the run times too, as they can be imported elsewhere."""
    return await call.read({"profiles": call.view.profiles(call.query.get("type"), with_times=call.flag("times"))})


async def importing(call: Call) -> web.Response:
    """Profiles as exported; each replaces the one of its type, model and size."""
    body = await call.typed_body(schemas.ProfilesBody)
    rows = read_profiles(body.profiles, call.daemon.config.limits.profiles)
    return call.answer(await call.daemon.ask(ImportProfiles(profiles=rows, actor=call.actor)))
