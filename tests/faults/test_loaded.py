"""A daemon under many waiting tasks dies, and is ready again with all of them; `make faults` does it with a million (`kill_daemon_loaded`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.loaded import FAULTS, READY_S, deaths


@pytest.mark.timeout(180)
def test_a_daemon_that_dies_under_its_load_is_ready_again_with_all_of_it(data_dir: Path) -> None:
    seed = int(os.environ.get("HETSCHED_SEED", "0")) or int.from_bytes(os.urandom(3))
    outcome = deaths(data_dir, len(FAULTS), seed, tasks=20_000)
    assert not outcome["said"], outcome
    assert (
        len(outcome["ready_s"]) == len(outcome["ready_cpu_s"]) == len(FAULTS) and max(outcome["ready_cpu_s"]) <= READY_S
    )
