"""`application/vnd.hetsched.columns`: tasks as columns, for clients that send very many.

A msgpack map: `templates`, a list of tasks without id; `ids`, their names as bytes joined by newlines, or `count` where names are made up;
`which`, where there is more than one template, which of them each task is (uint16, little endian). What a template may say is what a task may
say, but for ties to other tasks. A fault refuses the whole body: nobody writes columns by hand.
"""

from __future__ import annotations

import re

import msgspec

from hetsched.api.call import Call
from hetsched.api.known import Memory, forbidden
from hetsched.api.packed import unpack
from hetsched.errors import Problem
from hetsched.model.columns import MEDIA as MEDIA
from hetsched.scheduler.messages import Bundle, Known

MOST_TEMPLATES = 4096

_IDS = re.compile(rb"[A-Za-z0-9._:/-]{1,128}(?:\n[A-Za-z0-9._:/-]{1,128})*")


class Columns(msgspec.Struct, forbid_unknown_fields=True):
    """The body."""

    templates: list[msgspec.Raw]
    ids: bytes | None = None
    count: int | None = None
    which: bytes = b""


def bundle_of(call: Call, raw: bytes) -> Bundle:
    """The body's tasks; a Problem says what is wrong and where."""
    try:
        body = msgspec.msgpack.decode(raw, type=Columns)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise Problem(f"the body is no {MEDIA}: {error}", code="malformed") from None
    if not 1 <= len(body.templates) <= MOST_TEMPLATES:
        raise Problem.at("/templates", f"must have 1 to {MOST_TEMPLATES} entries, has {len(body.templates)}")
    ids = _ids(body, call.taker.task_defaults.array_tasks)
    which, counts = _which(body, len(ids))
    memory = call.desk.memory()
    known = [_template(call, memory, bytes(each), f"/templates/{at}") for at, each in enumerate(body.templates)]
    return Bundle(known=known, counts=counts, which=which, ids=ids, actor=call.actor)


def _ids(body: Columns, most: int) -> list[bytes]:
    if (body.ids is None) == (body.count is None):
        raise Problem.at("", "needs either ids or count")
    if body.ids is None:
        count = body.count or 0
        ids = [b""] * count if 0 < count <= most else []
    else:
        if not _IDS.fullmatch(body.ids):
            raise Problem.at(
                "/ids", "must be names of letters, digits and . _ : / -, at most 128 each, joined by newlines"
            )
        ids = body.ids.split(b"\n")
        count = len(ids)
    if not 1 <= count <= most:
        raise Problem.at("", f"must have 1 to {most} tasks (limits.array_tasks), has {count}")
    return ids


def _which(body: Columns, tasks: int) -> tuple[bytearray, list[int]]:
    """The column, and how many tasks each template has."""
    templates = len(body.templates)
    if not body.which and templates == 1:
        return bytearray(2 * tasks), [tasks]
    if len(body.which) != 2 * tasks:
        raise Problem.at("/which", f"must have {2 * tasks} bytes, two a task, has {len(body.which)}")
    import numpy as np  # 0.2 s of every start, for those who send columns

    column = np.frombuffer(body.which, "<u2")
    if int(column.max()) >= templates:
        raise Problem.at("/which", f"names template {int(column.max())} of {templates}")
    counts = np.bincount(column, minlength=templates).tolist()
    if 0 in counts:
        raise Problem.at(f"/templates/{counts.index(0)}", "no task is one of these")
    return bytearray(body.which), counts


def _template(call: Call, memory: Memory, raw: bytes, pointer: str) -> Known:
    try:
        known = memory.template(raw, unpack)
    except Problem as problem:
        raise problem.under(pointer) from None
    if (fault := forbidden(known.task, call.token)) is not None:
        raise fault.under(pointer)
    return known
