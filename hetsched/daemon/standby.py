"""A daemon that waits: another one leads the store, and this one follows the journal until the place is free.

Promises: what it shows is what the journal held `lag_s` ago, applied by the code that a restart uses; it fences nobody, decides nothing and
writes nothing but that it is there. `follow` ends when the leader's lease is over or the leader has named this daemon; what was followed is
then not read again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hetsched.config import Config
from hetsched.daemon.clock import Clock
from hetsched.daemon.measure import FAILOVERS
from hetsched.daemon.planner import FollowedPlanner
from hetsched.daemon.recover import Followed, apply, restore
from hetsched.metrics import Metrics
from hetsched.scheduler.view import View
from hetsched.store import START, JournalCorrupt, Leader, Outrun, Position, Store
from hetsched.store.follower import FRAMES_AT_ONCE

if TYPE_CHECKING:
    from hetsched.policy.scorers import Scorers

log = logging.getLogger("hetsched.daemon")

LOOK_S = 0.05
"""Between two looks at a journal that does not grow: what a standby lags behind, and what a hand-over waits for; half a percent of a core."""


class Standby:
    """`followed`: of an earlier wait in this life, None = read the journal from its snapshot. `leader`: who led when last looked.
    `is_readable`: whether the journal was read to its end once."""

    def __init__(
        self,
        config: Config,
        store: Store,
        scorers: Scorers | None,
        followed: Followed | None,
        leader: Leader,
        failovers: Mapping[str, int],
    ) -> None:
        self._config = config
        self._store = store
        self._scorers = scorers
        self._followed = followed
        self._failovers = failovers
        self._whole_s = time.monotonic()
        self._planner: tuple[Followed, FollowedPlanner] | None = None
        self.task_defaults = config.task_defaults()
        self.is_readable = False
        self.leader = leader
        self.metrics = Metrics()
        self._declare_gauges()

    # ------------------------------------------------------------------ reading

    @property
    def view(self) -> View:
        """Of what was read so far."""
        return self._known.scheduler.view

    @property
    def planner(self) -> FollowedPlanner:
        """Plans and explanations of what was read so far."""
        known = self._known
        if self._planner is None or self._planner[0] is not known:
            self.close()
            self._planner = known, FollowedPlanner(known.scheduler, Clock(), lambda: known.follower.at.seq)
        return self._planner[1]

    def close(self) -> None:
        """No more questions."""
        if self._planner is not None:
            self._planner[1].close()
            self._planner = None

    @property
    def lag_s(self) -> float:
        """Since we last knew of everything."""
        return time.monotonic() - self._whole_s

    async def settled(self) -> None:
        """All of it is durable: it was read from the journal."""

    def about(self) -> dict[str, Any]:
        """For `GET /v1/cluster`."""
        follower = self._known.follower
        return {
            "role": "standby",
            "leader": self.leader.url,
            "epoch": follower.at.epoch,
            "cluster": follower.cluster,
            "durability": str(self._store.durability),
            "mode": "normal",
            "lag": round(self.lag_s, 3),
        }

    @property
    def _known(self) -> Followed:
        assert self._followed is not None, "asked before it was readable"
        return self._followed

    # ------------------------------------------------------------------ following

    async def follow(self) -> Followed | None:
        """Until the place is free or ours; what was followed, None where the journal cannot be: whoever leads has to read it from its snapshot,
        and to say what is wrong with it. Raises ConfigError, StoreLost."""
        while True:
            try:
                self._followed = self._followed or await self._begin()
                await self._keep_up(self._followed)
                return self._followed
            except Outrun:
                log.warning("the journal was trimmed past this standby; it reads the snapshot anew")
            except JournalCorrupt as damage:
                log.error("this standby cannot follow: %s", damage)
                self.is_readable = False
                await self._wait()
                return None
            self.is_readable, self._followed = False, None

    async def _begin(self) -> Followed:
        follower = await self._store.follow()
        return Followed(restore(self._config, await follower.begin(), self._scorers), follower)

    async def _keep_up(self, followed: Followed) -> None:
        scheduler, follower = followed
        attended_s = 0.0
        while True:
            asked_s = time.monotonic()
            frames = await follower.more()
            for at, facts in frames:
                apply(scheduler, facts, at)
            if len(frames) < FRAMES_AT_ONCE:
                self._whole_s = asked_s
                if not self.is_readable:
                    log.info("standing by at %s; %s leads", follower.at.id, self.leader.url)
                self.is_readable = True
            if asked_s - attended_s >= LOOK_S:
                attended_s = asked_s
                leader = await self._store.attend(follower.at)
                if leader is None:
                    return
                self.leader = leader
            await asyncio.sleep(0 if frames else LOOK_S)

    async def _wait(self) -> None:
        while (leader := await self._store.attend(self._at)) is not None:
            self.leader = leader
            await asyncio.sleep(LOOK_S)

    @property
    def _at(self) -> Position:
        return START if self._followed is None else self._followed.follower.at

    def _declare_gauges(self) -> None:
        gauge = self.metrics.gauge
        gauge("hetsched_leader", "1 while this daemon leads", (), lambda: [((), 0)])
        gauge("hetsched_standby_lag_seconds", "Since a standby last knew of everything", (), lambda: [((), self.lag_s)])
        gauge("hetsched_epoch", "Of the last frame that was read", (), lambda: [((), self.about()["epoch"])])
        self.metrics.total(
            "hetsched_failovers",
            FAILOVERS,
            ("change",),
            lambda: (((change,), count) for change, count in self._failovers.items()),
        )
