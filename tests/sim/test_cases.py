"""The acceptance cases of the first issue, judged by their own expectations and by an auditor that knows only the rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = f"{sys.executable} -m hetsched simulate {{scenario}} --events {{events}} --json"


@pytest.fixture(scope="module")
def cases(shared: Path) -> Path:
    folder = shared / "cases"
    if not (folder / "run.py").is_file():
        pytest.skip("no acceptance cases beside the repository")
    return folder


def run(cases: Path, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(cases / "run.py"), "--command", COMMAND, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=300)


def test_the_basic_cases_pass_with_their_audit(cases: Path, root: Path) -> None:
    names = (cases / "basic.txt").read_text().split()
    done = run(cases, root, *[str(cases / "handed" / f"{name}.yaml") for name in names])
    assert done.returncode == 0, done.stdout
    assert f"{len(names)} passed, 0 failed" in done.stdout


@pytest.mark.parametrize("seed", [3, 11])
def test_everything_at_once_breaks_no_law(cases: Path, root: Path, seed: int) -> None:
    done = run(cases, root, "--mixed", f"1000,{seed}")
    assert done.returncode == 0, done.stdout
