"""Random clusters whose victims take their time, judged by the auditor that knows only the rules, and is told what a claim is: a decision that
was made when it was claimed, and room that is its own from then on."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.sim.test_gang_worlds import audit  # noqa: F401
from tests.sim.test_slow_stops import random_world
from tests.sim.worlds import Run


def judge(audit: ModuleType, scenario: dict[str, Any], run: Run) -> list[Any]:  # noqa: F811
    """Broken laws. `stop_time` is a field of the contract that the auditor was written before."""
    audit.FIELDS.add("stop_time")

    class Told(audit.Auditor):  # type: ignore[name-defined, misc]
        """`promised`: the seats of all claims that are open, by task."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.promised: dict[str, Any] = {}
            self.claimed_now: list[Any] = []

        def _event(self, event: dict[str, Any]) -> None:
            ident = event.get("task")
            if event["event"] == "claimed":
                grants = [(device["id"], device["share"]) for device in event["devices"]]
                seat = audit.Attempt(self.world.tasks[ident], 0, event["node"], grants, event["t"], event["_line"])
                self.promised[seat.task.id] = seat
                self.claimed_now.append((seat, self.waiting.get(ident)))
            super()._event(event)
            if event["event"] == "placed" and ident in self.promised:
                self.placed_now = [(attempt, since) for attempt, since in self.placed_now if attempt.task.id != ident]
            if event["event"] in ("placed", "unclaimed", "cancelled", "expired"):
                self.promised.pop(ident, None)

        def _claim(self, event: dict[str, Any], victim: Any, attempt: Any, by: Any) -> None:
            super()._claim(event, victim, attempt, by)
            group = ("task", by.id) if by.gang is None else ("gang", by.gang)
            own = [by] if by.gang is None else self.world.gangs[by.gang]
            others = [seat for seat in self.promised.values() if seat.task not in own]
            self.claims[group].setdefault("promised", others)

        def _would_fit(self, group: Any, claim: dict[str, Any], by: Any, gone: Any, newcomers: Any, nodes: Any) -> bool:
            come = {attempt.task.id for attempt in newcomers}
            kept = [seat for seat in claim["promised"] if seat.task.id not in come]
            return bool(super()._would_fit(group, claim, by, gone, [*newcomers, *kept], nodes))

        def _order(self, now: float) -> None:
            """Whoever has claimed is not passed by any more, and passes whom it passes when it claims."""
            begun, self.placed_now = self.placed_now, [*self.placed_now, *self.claimed_now]
            aside = [ident for ident in self.promised if ident in self.waiting]
            known = {ident: self.evicted_at[ident] for ident in aside if ident in self.evicted_at}
            self.evicted_at.update(dict.fromkeys(aside, now))
            super()._order(now)
            self.placed_now, self.claimed_now = begun, []
            for ident in aside:
                self.evicted_at.pop(ident)
            self.evicted_at.update(known)

    events = [{**event, "_line": at} for at, event in enumerate(run.events, 1)]
    return list(Told(audit.World(scenario), events, run.summary).run())


MORE = [pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(2, 37), *range(49, 80))]


@pytest.mark.parametrize("gangs", [0.0, 0.25])
@pytest.mark.parametrize("seed", [0, 1, 37, 43, 48, *MORE])
def test_slow_victims_break_no_law(
    audit: ModuleType,  # noqa: F811
    tmp_path: Path,
    seed: int,
    gangs: float,
) -> None:
    scenario = random_world(seed, tasks=200, gangs=gangs)
    assert judge(audit, scenario, Run(tmp_path, scenario)) == []
