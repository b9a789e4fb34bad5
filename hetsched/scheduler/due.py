"""What happens when a timer is due. Every timer is checked against the state again: a late one does nothing."""

from __future__ import annotations

from hetsched import _core
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.timers import Subject, Timer
from hetsched.scheduler.world import World


class Due:
    """One method a kind of timer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._by_kind = {
            Timer.BACKOFF: self._backoff,
            Timer.DEADLINE: self._deadline,
            Timer.TIME_LIMIT: self._time_limit,
            Timer.CLAIM: self._claim,
            Timer.REPAIR: self._repair,
            Timer.DAMPED: self._damped,
            Timer.GRAPH: self._graph,
            Timer.PLANNING: self._planning,
        }

    def fire(self) -> None:
        """Everything that is due now."""
        for kind, subject in self.world.timers.pop(self.world.now_ns):
            self._by_kind[kind](subject)
            self.world.drain()

    def _state(self, task: Subject) -> int:
        assert isinstance(task, int)
        return self.world.core.task(task).state

    def _backoff(self, task: Subject) -> None:
        if self._state(task) == _core.BACKOFF:
            self.world.core.ready(int(task))

    def _deadline(self, task: Subject) -> None:
        if self._state(task) in (_core.QUEUED, _core.HELD, _core.BACKOFF):
            self.world.core.ended(int(task), _core.EXPIRED, Reason.DEADLINE)

    def _time_limit(self, task: Subject) -> None:
        if self._state(task) in (_core.PLACED, _core.RUNNING):
            self.world.core.stop(int(task), Reason.TIME_LIMIT)

    def _claim(self, task: Subject) -> None:
        if self.world.core.task(int(task)).flags & _core.CLAIMING:
            self.world.core.unclaim(int(task))

    def _damped(self, _task: Subject) -> None:
        """It may be evicted again: whoever is blocked may have a proof now."""
        self.world.capacity_changed = True

    def _graph(self, graph: Subject) -> None:
        """A piece of it runs longer than expected: the conductor looks at it."""
        self.world.books.graphs.changed.add(str(graph))

    def _planning(self, graph: Subject) -> None:
        """Its plan is not done: the conductor goes on with it in this turn, as in any."""

    def _repair(self, gang: Subject) -> None:
        """It was not made whole in time: requeue it as a whole."""
        known = self.world.books.gangs.by_name.get(str(gang))
        if known is None or not self.world.books.gangs.is_short(known):
            return
        for member in sorted(known.members):
            if self._state(member) in (_core.PLACED, _core.RUNNING):
                self.world.core.stop(member, Reason.GANG)
