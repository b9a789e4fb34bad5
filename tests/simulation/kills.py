"""Which world killed each mutant: written by `python -m tests.simulation --mutants`."""

from __future__ import annotations

from typing import NamedTuple


class Kill(NamedTuple):
    """`seed` of the world in which the auditor noticed, `law` that was broken there, `hours` of all worlds until then."""

    law: str
    seed: int
    hours: float


KILLED_BY: dict[str, Kill] = {
    "answers_before_durable": Kill("I1", 1, 0.27),
    "orders_before_durable": Kill("I5", 1, 0.15),
    "reads_before_durable": Kill("I7", 7, 4.83),
    "lost_too_early": Kill("I3", 3, 2.02),
    "lost_without_grace": Kill("I3", 4, 2.6),
    "silent_is_lost": Kill("I3", 1, 0.16),
    "forgets_nodes_at_restart": Kill("I12", 4, 2.64),
    "deposed_leaders_renew_leases": Kill("I3", 1, 0.42),
    "silence_counts_from_nothing": Kill("I3", 1, 0.02),
    "strangers_are_not_waited_for": Kill("I4", 7, 5.47),
    "strangers_live_on": Kill("I2", 1, 0.91),
    "stale_results_count": Kill("I3", 1, 0.24),
    "missing_attempts_are_forgotten": Kill("I12", 2, 2.83),
    "cancelled_at_once": Kill("I3", 1, 0.01),
    "gangs_are_half_released": Kill("I5", 1, 0.02),
    "failed_devices_are_used": Kill("I4", 5, 3.64),
    "attempts_are_counted_twice": Kill("I10", 1, 0.02),
    "who_waits_ends_an_attempt": Kill("I10", 1, 0.15),
    "the_same_again_is_refused": Kill("I8", 1, 0),
    "keys_are_forgotten": Kill("I8", 2, 0.94),
    "deposed_leaders_write": Kill("I9", 1, 0.24),
    "deposed_does_not_notice": Kill("I12", 2, 1.15),
    "no_answer_is_a_yes": Kill("I12", 1, 0.19),
    "unanswered_frames_are_dropped": Kill("I1", 1, 0.03),
    "resends_are_new": Kill("I9", 3, 1.97),
    "no_new_epoch": Kill("I12", 1, 0.19),
    "the_last_frame_is_not_read": Kill("I1", 1, 0.39),
    "trims_too_much": Kill("I12", 3, 2.25),
    "orders_of_old_sessions": Kill("I3", 8, 6.17),
    "lease_for_ever": Kill("I3", 2, 1.3),
    "what_was_begun_is_forgotten": Kill("I4", 2, 1.28),
    "nobody_hunts": Kill("I3", 2, 0.86),
    "a_dead_shim_is_a_success": Kill("I6", 1, 0.39),
    "stops_are_not_obeyed": Kill("I4", 1, 0.01),
    "another_boot_is_this_boot": Kill("I12", 4, 3.09),
    "an_older_store_is_believed": Kill("I3", 1, 0.03),
}
