"""HEFT: the ranks and the schedule of the paper's own example, gaps, waiting for a fast device, divisible jobs, bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hetsched.policy.heft import Choice, Job, Plan, critical_path, run_s, upward_ranks, work_bound
from hetsched.policy.timetable import NEVER, Timetable
from loadtest import reference_heft

# Topcuoglu, Hariri and Wu 2002, figure 2 and table 2: ten tasks, three processors.
COSTS = {
    "1": (14, 16, 9),
    "2": (13, 19, 18),
    "3": (11, 13, 19),
    "4": (13, 8, 17),
    "5": (12, 13, 10),
    "6": (13, 16, 9),
    "7": (7, 15, 11),
    "8": (5, 11, 14),
    "9": (18, 12, 20),
    "10": (21, 7, 16),
}
PARENTS = {
    "1": {},
    "2": {"1": 18},
    "3": {"1": 12},
    "4": {"1": 9},
    "5": {"1": 11},
    "6": {"1": 14},
    "7": {"3": 23},
    "8": {"2": 19, "4": 27, "6": 15},
    "9": {"2": 16, "4": 23, "5": 13},
    "10": {"7": 17, "8": 11, "9": 13},
}
RANKS = (108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667)


def on(place: int, seconds: float, *, units: int = 1) -> Choice:
    return Choice(place, 0, f"m{place}", seconds, ((0, 1),), units)


def papers_jobs() -> list[Job]:
    return [
        Job(
            1.0,
            [on(place, seconds) for place, seconds in enumerate(costs)],
            [(int(p) - 1, s) for p, s in PARENTS[name].items()],
        )  # type: ignore[misc]
        for name, costs in COSTS.items()
    ]


def test_ranks_are_those_of_the_paper() -> None:
    ranks = upward_ranks(papers_jobs(), range(10), 1.0)
    assert ranks == [pytest.approx(rank, abs=0.001) for rank in RANKS]


def test_the_reference_finds_the_schedule_of_the_paper() -> None:
    done = reference_heft.schedule(COSTS, PARENTS, ["p1", "p2", "p3"])
    assert max(end for _, _, end in done.values()) == 80
    assert done["10"] == (1, 73, 80)


def test_a_plan_never_has_two_at_once_on_a_place_that_holds_one() -> None:
    plan = Plan([Timetable([1]) for _ in range(3)], 1.0, {}).fill(papers_jobs(), range(10))
    spans = sorted((p.choice.place, p.start_s, p.end_s) for p in plan.planned.values() if p.choice)
    assert len(spans) == 10
    assert all(a[0] != b[0] or a[2] <= b[1] + 1e-9 for a, b in pairwise(spans))


def test_a_busy_fast_place_is_waited_for_where_it_ends_sooner() -> None:
    fast, slow = Timetable([1]), Timetable([1])
    fast.take(((0, 1),), 0.0, 10.0)
    job = Job(10.0, [on(0, 1.0), on(1, 5.0)], [])
    (planned,) = Plan([fast, slow], 1.0, {}).fill([job], [0]).planned.values()
    assert (planned.choice and planned.choice.place, planned.start_s, planned.end_s) == (0, 10.0, 20.0)


def test_a_gap_is_filled_where_it_is_long_enough() -> None:
    table = Timetable([2])
    table.take(((0, 2),), 5.0, 20.0)
    assert table.earliest(((0, 1),), 0.0, 5.0) == 0.0
    assert table.earliest(((0, 1),), 1.0, 5.0) == 20.0
    assert table.earliest(((0, 3),), 0.0, 1.0) == NEVER
    table.take(((0, 1),), 0.0, 5.0)
    assert table.earliest(((0, 1),), 0.0, 5.0) == 0.0
    assert table.earliest(((0, 2),), 0.0, 1.0) == 20.0


def test_a_divisible_job_takes_all_places_and_ends_on_all_at_once() -> None:
    late = Timetable([1])
    late.take(((0, 1),), 0.0, 4.0)
    job = Job(20.0, [on(0, 1.0), on(1, 1.0)], [], is_divisible=True)
    (planned,) = Plan([Timetable([1]), late], 1.0, {}).fill([job], [0]).planned.values()
    assert planned.end_s == 12.0  # 12 s on the one, 8 s on the other
    assert run_s(job) == 10.0


def test_what_nothing_can_run_is_left_out_with_all_that_needs_it() -> None:
    jobs = [Job(1.0, [on(0, 1.0)], []), Job(1.0, [], []), Job(1.0, [on(0, 1.0)], [(1, 0)])]
    assert set(Plan([Timetable([1])], 1.0, {}).fill(jobs, range(3)).planned) == {0}


def test_bounds() -> None:
    choices = [on(0, 1.0), on(1, 2.0)]
    chain = [Job(10.0, choices, []), Job(10.0, choices, [(0, 5)])]
    assert critical_path(chain, (0, 1)) == (20.0, [0, 1])
    assert work_bound(chain) == pytest.approx(20.0 / 1.5)
    only_slow = [on(1, 2.0)]
    assert work_bound([*chain, Job(30.0, only_slow, [])]) == 60.0
