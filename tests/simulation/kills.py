"""Which world killed each mutant: written by `python -m tests.simulation --mutants`."""

from __future__ import annotations

from typing import NamedTuple


class Kill(NamedTuple):
    """`seed` of the world in which the auditor noticed, `law` that was broken there, `hours` of all worlds until then."""

    law: str
    seed: int
    hours: float


KILLED_BY: dict[str, Kill] = {
    "answers_before_durable": Kill("I1", 2, 1),
    "orders_before_durable": Kill("I6", 2, 0.95),
    "reads_before_durable": Kill("I7", 2, 1.03),
    "lost_too_early": Kill("I3", 4, 2.19),
    "lost_without_grace": Kill("I3", 1, 0.12),
    "silent_is_lost": Kill("I3", 2, 1.16),
    "forgets_nodes_at_restart": Kill("I12", 8, 5.23),
    "deposed_leaders_renew_leases": Kill("I3", 30, 19.6),
    "deposed_leaders_answer": Kill("I1", 39, 27.68),
    "takeovers_are_forgotten": Kill("I3", 118, 7.13),
    "hellos_are_obedience": Kill("I3", 1008, 49.78),
    "silence_counts_from_nothing": Kill("I3", 2, 0.89),
    "strangers_are_not_waited_for": Kill("I4", 2, 0.83),
    "strangers_live_on": Kill("I2", 1, 0.78),
    "stale_results_count": Kill("I3", 1, 0.02),
    "missing_attempts_are_forgotten": Kill("I12", 6, 3.73),
    "cancelled_at_once": Kill("I4", 1, 0.06),
    "gangs_are_half_released": Kill("I5", 1, 0.39),
    "gangs_stay_short": Kill("I5", 5, 2.87),
    "closed_nodes_stay_open": Kill("I4", 1, 0.05),
    "failed_devices_are_used": Kill("I4", 1, 0.02),
    "attempts_are_counted_twice": Kill("I10", 1, 0.02),
    "who_waits_ends_an_attempt": Kill("I10", 1, 0.07),
    "snapshots_forget_the_time": Kill("I12", 154, 38.38),
    "the_same_again_is_refused": Kill("I8", 1, 0),
    "keys_are_forgotten": Kill("I8", 1, 0.15),
    "deposed_leaders_write": Kill("I9", 2, 1.13),
    "deposed_does_not_notice": Kill("I2", 4, 2.48),
    "no_answer_is_a_yes": Kill("I12", 1, 0.29),
    "unanswered_frames_are_dropped": Kill("I2", 1, 0.12),
    "resends_are_new": Kill("I9", 1, 0.12),
    "no_new_epoch": Kill("I12", 2, 1.37),
    "the_last_frame_is_not_read": Kill("I2", 2, 1.21),
    "trims_too_much": Kill("I12", 2, 1.27),
    "the_servers_clock_is_believed": Kill("I12", 221, 48.66),
    "orders_of_old_sessions": Kill("I12", 1, 3.52),
    "obeys_old_epochs": Kill("I3", 957, 48.23),
    "lease_from_receipt": Kill("I3", 55, 12.12),
    "lease_for_ever": Kill("I3", 1, 0.13),
    "starts_twice": Kill("I4", 23, 6.33),
    "ends_are_said_once": Kill("I6", 2, 0.68),
    "no_tombstones": Kill("I12", 230, 52.46),
    "what_was_begun_is_forgotten": Kill("I3", 2, 0.76),
    "never_begun_is_believed": Kill("I4", 2, 0.06),
    "orders_outlive_their_lease": Kill("I3", 11, 1.17),
    "nobody_hunts": Kill("I6", 2, 1.12),
    "a_dead_shim_is_a_success": Kill("I6", 18, 12.23),
    "stops_are_not_obeyed": Kill("I4", 1, 0.04),
    "another_boot_is_this_boot": Kill("I12", 8, 5.32),
    "an_older_store_is_believed": Kill("I2", 2, 0.83),
}
