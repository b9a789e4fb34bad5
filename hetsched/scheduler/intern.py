"""Words as small integers: device kinds, models, topology labels and their values. Never forgotten, bounded."""

from __future__ import annotations

from hetsched.errors import Problem


class Interned:
    """The n-th new word gets n. `limit`: how many the core can hold."""

    def __init__(self, what: str, limit: int) -> None:
        self.what = what
        self.limit = limit
        self.words: list[str] = []
        self._slot: dict[str, int] = {}

    def slot(self, word: str) -> int:
        """Number of the word, a new one if need be. Raises Problem (422) when the table is full."""
        found = self._slot.get(word)
        if found is None:
            self.check_room([word])
            found = self._slot[word] = len(self.words)
            self.words.append(word)
        return found

    def known(self, word: str) -> int:
        """Number of the word, or -1."""
        return self._slot.get(word, -1)

    def check_room(self, words: list[str]) -> None:
        """Raises Problem (422) if these words do not all fit; changes nothing."""
        new = {word for word in words if word not in self._slot}
        if len(self.words) + len(new) > self.limit:
            raise Problem(
                status=422,
                title="too many words",
                detail=f"at most {self.limit} different {self.what} can be known; new here: {', '.join(sorted(new))}",
            )

    def load(self, words: list[str]) -> None:
        """From a snapshot."""
        for word in words:
            self.slot(word)
