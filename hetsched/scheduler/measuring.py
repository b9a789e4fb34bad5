"""What nodes measure of attempts: written down, lent on, and given back in the same turn when the owner needs it again.

Agents tell what has changed enough to matter (agent/use.py), so what is heard is written down as it is; where nothing depends on it
(neither overcommit nor feedback), nothing is.
"""

from __future__ import annotations

from hetsched._core import NONE
from hetsched.config import Config
from hetsched.scheduler import words
from hetsched.scheduler.lifecycle import LIVE_CODES
from hetsched.scheduler.messages import AttemptUse, UseReported
from hetsched.scheduler.rendering import settings_json
from hetsched.scheduler.uses import is_lending
from hetsched.scheduler.world import World


def is_measuring(config: Config) -> bool:
    """Whether anything depends on what is measured."""
    return is_lending(config) or config.feedback.enabled


class Measuring:
    """Handler of what nodes measure."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._listens = is_measuring(world.config)

    def on_use_reported(self, asked: UseReported) -> None:
        """All of the report counts at once; whose use rose most is the owner that those who have to go are told of."""
        node = self.world.books.cluster.by_name.get(asked.node)
        if node is None or not self._listens:
            return
        changed = {task: use for use in asked.uses if (task := self._live(asked.node, use)) != NONE}
        rises = {task: self._rise(task, use) for task, use in changed.items()}
        rows = tuple(
            (task, use.cpu_milli, use.memory_bytes, use.utilization_milli)
            for task, use in sorted(changed.items())
            if self._is_news(task, use)
        )
        if not rows:
            return
        self.world.books.say(words.Measured(self.world.now_ns, rows))
        owner = max(rises, key=lambda task: (rises[task], -task))
        if rises[owner] > 0:
            self.world.core.give_back(node.slot, owner)
        self.world.capacity_changed = True

    def steer(self) -> None:
        """What has ended says that something should be turned: written down, and in effect for this turn's decisions."""
        feedback = self.world.books.feedback
        settings = None if feedback is None or not self.world.books.learns else feedback.advice()
        if feedback is None or settings is None:
            return
        error_milli = feedback.error_milli
        self.world.books.say(words.Measured(self.world.now_ns, settings=settings))
        self.world.emit("steered", error=error_milli / 1000, **settings_json(settings))
        self.world.capacity_changed = True

    def _live(self, node: str, use: AttemptUse) -> int:
        """Slot of the task whose live attempt this is, or NONE."""
        task = self.world.core.find(use.task.encode())
        if task == NONE or self.world.core.task(task).state not in LIVE_CODES:
            return NONE
        attempt = self.world.books.attempts.live[task]
        return task if (attempt.node, attempt.number) == (node, use.attempt) else NONE

    def _is_news(self, task: int, use: AttemptUse) -> bool:
        before = self.world.books.uses.by_task.get(task)
        said = (use.cpu_milli, use.memory_bytes, use.utilization_milli)
        return before is None or (before.cpu_milli, before.memory_bytes, before.utilization_milli) != said

    def _rise(self, task: int, use: AttemptUse) -> float:
        """By how much of what it holds its use grew; a new attempt used all of it until it was measured."""
        before = self.world.books.uses.by_task.get(task)
        if before is None:
            return 0.0
        held = self.world.body(task).resources
        return max(
            _grown(before.cpu_milli, use.cpu_milli, held.cpu_milli),
            _grown(before.memory_bytes, use.memory_bytes, held.memory_bytes),
        )


def _grown(before: int, now: int, held: int) -> float:
    """Not measured counts as all that is held."""
    if held == 0:
        return 0.0
    return (_within(now, held) - _within(before, held)) / held


def _within(used: int, held: int) -> int:
    return held if used < 0 else min(used, held)
