"""`hetsched doctor`: is this machine fit for a daemon and an agent, and what is to be done where it is not.

Promises: nothing is changed but a file of some kilobytes that is written and removed to time the disk; every line that is not `ok` names its
fix; a check that cannot be made says so as a warning instead of failing the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hetsched.config import Config
from hetsched.doctor import isolation, journal, machine, serving
from hetsched.doctor.check import Check, Verdict

__all__ = ["Check", "Verdict", "examine"]


def examine(config: Config, data_dir: Path, store_url: str, listen: str) -> Iterator[Check]:
    """Every check, one after the other as it is done."""
    yield machine.python()
    yield machine.core()
    yield machine.spawner()
    yield from machine.directory(data_dir)
    yield from machine.clocks()
    yield from machine.limits()
    yield from isolation.checks(data_dir)
    yield from serving.checks(data_dir, listen)
    yield from journal.checks(config, data_dir, store_url)
