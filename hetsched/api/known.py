"""Tasks whose like was read before: what is kept of them, and the proof that it may be.

The scanner (`hetsched._scan`) remembers a body by all its bytes but those of its id. Here is what it asks about bodies that it does not know:
they are read by the same strict readers as everywhere, and a body may be remembered once a second reading, with another id put in the same
place, gave the same object but for that id. Bodies with a fault, and those that have to be judged one by one, are left to `submit.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hetsched._scan import Recall, Recognised
from hetsched.daemon.auth import Token
from hetsched.errors import Forbidden, Problem
from hetsched.model import Qos, Task, TaskDefaults, parse_json, parse_task, task_to_json
from hetsched.scheduler.bundles import known_of
from hetsched.scheduler.messages import Known

PLACES = 8192
LONGEST_SKELETON = 2048
"""Bytes; so all that is remembered has at most 16 MB. Longer bodies are read every time."""


class Memory:
    """`immediate`: qos of the immediate lane."""

    def __init__(self, defaults: TaskDefaults, immediate: frozenset[Qos]) -> None:
        self._defaults = defaults
        self._immediate = immediate
        self.recall = Recall(PLACES, self._read)
        self._templates: dict[bytes, Known] = {}

    def _read(self, before: bytes, ident: bytes, after: bytes, again: bool) -> tuple[Recognised | None, bool]:
        try:
            raw = parse_json(before + ident + after)
            task = parse_task(raw, self._defaults)
        except Problem:
            return None, False
        known = known_of(task)
        if known is None or (task.id or "").encode() != ident:
            return None, False
        is_worth_it = again and len(before) + len(after) <= LONGEST_SKELETON
        return self._recognised(task, known), is_worth_it and _is_all_but_the_id(raw, before, ident, after)

    def template(self, raw: bytes, decode: Callable[[bytes], object]) -> Known:
        """What tasks of this template have in common. Raises Problem; those that were fine are remembered by their bytes."""
        known = self._templates.get(raw)
        if known is None:
            task = parse_task(decode(raw), self._defaults)
            known = known_of(task)
            if task.id is not None:
                raise Problem.at("/id", "stands in ids, not in a template")
            if known is None:
                raise Problem.at("", "has ties to other tasks, or expires: submit such tasks whole")
            if len(self._templates) >= PLACES:
                self._templates.clear()
            if len(raw) <= LONGEST_SKELETON:
                self._templates[raw] = known
        return known

    def _recognised(self, task: Task, known: Known) -> Recognised:
        request = msgspec.json.encode(task_to_json(msgspec.structs.replace(task, id="0")))
        before, _, after = request.partition(b'"0"')
        assert before == b'{"id":'
        lane = b"immediate" if task.qos in self._immediate else b"batch"
        return Recognised(known, lane, b'"' + after, task.qos is Qos.critical)


def _is_all_but_the_id(raw: object, before: bytes, ident: bytes, after: bytes) -> bool:
    """Whether another id in the same place makes the same object with another id."""
    if not ident:
        return isinstance(raw, dict) and "id" not in raw
    other = b"a" if ident != b"a" else b"b"
    return isinstance(raw, dict) and parse_json(before + other + after) == {**raw, "id": other.decode()}


def may_submit(token: Token, task: Task) -> bool:
    """Whether nothing about the task is forbidden to the token."""
    return forbidden(task, token) is None


def forbidden(task: Task, token: Token) -> Problem | None:
    """What the token may not: a critical task without `immediate`, a queue it is not bound to."""
    pointer = "/queue"
    try:
        token.require_queue(task.queue)
        pointer = "/qos"
        if task.qos is Qos.critical:
            token.require("immediate")
    except Forbidden as error:
        return Problem.at(pointer, error.detail, code="forbidden")
    return None
