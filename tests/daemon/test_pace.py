"""Placements a turn follow what placing costs."""

from __future__ import annotations

from hetsched.daemon.pace import FEWEST, MOST, TURN_S, Pace


def test_turns_grow_while_they_are_short_and_cut() -> None:
    pace = Pace()
    for _ in range(3):
        pace.turned(TURN_S / 10, is_cut=True)
    assert pace.most == 8 * FEWEST
    pace.turned(TURN_S / 10, is_cut=False)
    assert pace.most == 8 * FEWEST
    for _ in range(20):
        pace.turned(TURN_S / 10, is_cut=True)
    assert pace.most == MOST


def test_turns_shrink_when_they_are_long_and_rest_in_between() -> None:
    """Where a placement costs 1 µs a turn settles at what takes TURN_S, without going up and down."""
    pace = Pace()
    sizes = []
    for _ in range(50):
        pace.turned(pace.most * 1e-6, is_cut=True)
        sizes.append(pace.most)
    assert set(sizes[10:]) == {4096} or set(sizes[10:]) == {2048}
    assert pace.most * 1e-6 <= 2 * TURN_S
    for _ in range(20):
        pace.turned(1.0, is_cut=True)
    assert pace.most == FEWEST
