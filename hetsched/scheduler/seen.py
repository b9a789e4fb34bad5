"""Which reasons waiting tasks were seen to have, and when: what `explain` adds to the reason of this very moment.

Seen, not lived through: a reason is noted when somebody asks for it (explain, or the metrics once a scrape, by shape). It is the read side's
own memory, bounded, in no journal and gone with the process; nothing is decided by it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

KEPT_REASONS = 8
KEPT_SUBJECTS = 20_000


class Sight(NamedTuple):
    """`times`: how often it was seen, from `first_ns` to `last_ns`."""

    reason: str
    first_ns: int
    last_ns: int
    times: int


class Seen:
    """By subject (a task, or a shape), least recently noted forgotten first."""

    def __init__(self) -> None:
        self._sights: OrderedDict[Hashable, dict[str, Sight]] = OrderedDict()

    def note(self, subject: Hashable, reason: str, now_ns: int) -> None:
        """It has this reason now."""
        sights = self._sights.setdefault(subject, {})
        self._sights.move_to_end(subject)
        before = sights.pop(reason, Sight(reason, now_ns, now_ns, 0))  # pop: the dict is in order of last sight
        sights[reason] = before._replace(last_ns=now_ns, times=before.times + 1)
        if len(sights) > KEPT_REASONS:
            del sights[next(iter(sights))]
        if len(self._sights) > KEPT_SUBJECTS:
            self._sights.popitem(last=False)

    def of(self, *subjects: Hashable, since_ns: int = 0) -> list[Sight]:
        """What was seen of all of these since then, last seen first."""
        merged: dict[str, Sight] = {}
        for subject in subjects:
            for sight in self._sights.get(subject, {}).values():
                if sight.last_ns >= since_ns:
                    merged[sight.reason] = _both(merged.get(sight.reason, sight), sight, since_ns)
        return sorted(merged.values(), key=lambda sight: -sight.last_ns)


def _both(one: Sight, other: Sight, since_ns: int) -> Sight:
    times = one.times if one is other else one.times + other.times
    first_ns = max(since_ns, min(one.first_ns, other.first_ns))
    return Sight(one.reason, first_ns, max(one.last_ns, other.last_ns), times)
