"""Who waits for whom. Only tasks with `after` cost anything here; settled links are dropped.

A link is (child, parent, when). Rebuilt from the table at restart: the held tasks and their bodies say it all.
"""

from __future__ import annotations

from hetsched import _core
from hetsched.model import Dependency

MET, HOPELESS, OPEN = "met", "hopeless", "open"
_FAILURES = (_core.FAILED, _core.EXPIRED, _core.CANCELLED)


def judge(when: str, parent_state: int) -> str:
    """What a link is worth now that its parent is in `parent_state`. `failed` means failed, expired or cancelled; a skipped
    parent satisfies only `ended`."""
    if parent_state < _core.SUCCEEDED:
        return OPEN
    if when == "ended":
        return MET
    if when == "succeeded":
        return MET if parent_state == _core.SUCCEEDED else HOPELESS
    return MET if parent_state in _FAILURES else HOPELESS


class Dependencies:
    """By parent slot and by child slot."""

    def __init__(self) -> None:
        self._children: dict[int, dict[int, list[str]]] = {}
        self._open: dict[int, int] = {}

    def link(self, child: int, parents: list[tuple[int, str]]) -> None:
        """The child waits for these open parents."""
        self._open[child] = len(parents)
        for parent, when in parents:
            self._children.setdefault(parent, {}).setdefault(child, []).append(when)

    def parent_ended(self, parent: int, state: int) -> list[tuple[int, str]]:
        """[(child, MET | HOPELESS)] of the children whose fate is settled by this end, in order of submission to this book."""
        settled = []
        for child, whens in self._children.pop(parent, {}).items():
            if child not in self._open:
                continue
            if any(judge(when, state) == HOPELESS for when in whens):
                del self._open[child]
                settled.append((child, HOPELESS))
                continue
            self._open[child] -= len(whens)
            if self._open[child] == 0:
                del self._open[child]
                settled.append((child, MET))
        return settled

    def child_ended(self, child: int) -> None:
        """The child waits for nobody any more."""
        self._open.pop(child, None)

    def __bool__(self) -> bool:
        """Whether anybody waits for anybody."""
        return bool(self._children)

    def is_parent(self, task: int) -> bool:
        """Whether anybody waits for it."""
        return task in self._children


def find_cycle(after: dict[str, tuple[Dependency, ...]]) -> set[str]:
    """Ids of a submission that can never start because they (in the end) wait for themselves."""
    state: dict[str, int] = {}
    cyclic: set[str] = set()
    for root in after:
        if state.get(root):
            continue
        path = [(root, iter(after[root]))]
        state[root] = 1
        while path:
            name, links = path[-1]
            for link in links:
                seen = state.get(link.id)
                if link.id not in after or seen == 2:
                    continue
                if seen == 1:
                    names = [n for n, _ in path]
                    cyclic.update(names[names.index(link.id) :])
                    continue
                state[link.id] = 1
                path.append((link.id, iter(after[link.id])))
                break
            else:
                state[name] = 2
                path.pop()
    return cyclic
