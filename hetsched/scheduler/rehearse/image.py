"""A picture of the scheduler at one instant, and copies of the scheduler made from it.

Promises: taking it changes nothing, neither facts nor events nor ids; a copy decides as the scheduler would decide now, for it is the same
code over the same tables; nothing that a copy does reaches the scheduler or another copy. What has ended is left out: no decision looks at it.

*Why a dump of the core* (and not a copy table by table): it is the one list of all tables that a restart depends on, so a new table cannot be
forgotten here. It takes a few milliseconds for 100,000 waiting tasks; whatever is slower is done by `open_copy`, in another thread.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched._core import Core
from hetsched.config import Config
from hetsched.policy.profiles import Profile
from hetsched.scheduler import snapshot
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.gangs import Gang
from hetsched.scheduler.scheduler import Derived, Scheduler

if TYPE_CHECKING:
    from hetsched.policy.scorers import Scorers

Patience = Callable[[], bool]
"""Whether the time for an answer is over: from outside, because there is no clock here."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """`changes`: the scheduler's, so that an image can be told to be up to date. `graphs`: those under way, with how many operators are no
    tasks yet; a copy knows only the pieces of them that are tasks, and cuts none (it says so: `left_out`)."""

    config: Config
    seed: int
    epoch: int
    changes: int
    core: bytes
    words: snapshot.Saved
    derived: Derived
    graphs: tuple[tuple[str, int], ...] = ()

    def left_out(self) -> list[dict[str, Any]]:
        """What no copy knows, and no answer counts with."""
        return [
            {
                "graph": ident,
                "operators": count,
                "detail": f"{count} operators of graph {ident} are no tasks yet, and are not counted here",
            }
            for ident, count in self.graphs
        ]


def take(scheduler: Scheduler, *, apart: bool = True) -> Image:
    """The scheduler as it is between two turns. `apart` False: for one that is encoded before the next turn, which needs no copies."""
    words = snapshot.words_of(scheduler.books, past=False)
    return Image(
        config=scheduler.config,
        seed=scheduler.world.seed,
        epoch=scheduler.world.epoch,
        changes=scheduler.changes,
        core=scheduler.core.dump(),
        words=_apart(words) if apart else words,
        derived=scheduler.derived(),
        graphs=tuple((course.id, count) for course in scheduler.books.graphs.open() if (count := course.uncut())),
    )


def open_copy(image: Image, now_ns: int) -> Scheduler:
    """A scheduler of its own, which has decided both lanes once: what is derived while deciding (reservations) is there again, and what
    was about to be placed is placed. It has no timers."""
    scheduler = load_copy(image)
    scheduler.world.capacity_changed = True
    scheduler.window.open(0)
    scheduler.step([], max(now_ns, scheduler.books.now_ns))
    return scheduler


def load_copy(image: Image) -> Scheduler:
    """The same before it has decided anything."""
    books = snapshot.unfold(image.config, Core.load(image.core), _apart(image.words))
    books.learns = False
    policy = image.config.policy
    scorers = _scorers(tuple(policy.scorers)) if policy.scorers else None
    scheduler = Scheduler(image.config, seed=image.seed, epoch=image.epoch, books=books, scorers=scorers)
    scheduler.clerk.own = ""  # from a copy nothing goes anywhere
    scheduler.adopt(image.derived)
    scheduler.world.now_ns = books.now_ns
    return scheduler


@cache
def _scorers(names: tuple[str, ...]) -> Scorers:
    """The plug-ins, loaded once: looking for entry points takes longer than a decision."""
    from hetsched.policy.scorers import Scorers, load_scorers  # numpy, only where it is needed

    return Scorers(load_scorers(names))


def _apart(words: snapshot.Saved) -> snapshot.Saved:
    """With copies of all that can change."""
    fields: dict[str, Any] = {
        name: value if name in SHARED else copy.deepcopy(value)
        for name, value in msgspec.structs.asdict(words).items()
        if name not in QUICK
    }
    nodes, labels, values = words.cluster
    templates, free, shapes = words.templates
    fields["cluster"] = [_node(node) for node in nodes], list(labels), list(values)
    fields["templates"] = templates, list(free), list(shapes)
    fields["gangs"] = [_gang(gang) for gang in words.gangs]
    fields["profiles"] = [_profile(profile) for profile in words.profiles]
    return snapshot.Saved(**fields)


SHARED = ("queues", "attempts", "backoff_until_ns", "keys", "audit", "ended", "uses", "feedback")
"""Made anew for the image by the books, of frozen things only."""

QUICK = ("cluster", "templates", "gangs", "profiles")
"""Large, and copied by hand as far as they can change. Every field that is named here or above nowhere is copied through and through."""


def _node(node: Node) -> Node:
    found = copy.copy(node)
    found.health, found.health_reason = list(node.health), list(node.health_reason)
    return found


def _gang(gang: Gang) -> Gang:
    found = copy.copy(gang)
    found.members = set(gang.members)
    return found


def _profile(profile: Profile) -> Profile:
    found = copy.copy(profile)
    found.times_ms = list(profile.times_ms)
    return found
