"""One command runs every benchmark: none is forgotten, each says its question, and one that fails is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest import benches


def test_every_benchmark_is_run_and_asks_a_question(root: Path) -> None:
    there = {path.stem.removeprefix("bench_") for path in (root / "loadtest").glob("bench_*.py")}
    assert there == benches.SHORT.keys() | benches.WITH_TRACES.keys()
    for name in there:
        assert "?" in benches.question(name), name


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benches.main(["--only", "nothing"])
    assert "core_cycle" in capsys.readouterr().err


def test_one_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(benches.SHORT, "plan", ["--no-such-option"])
    assert benches.main(["--only", "plan"]) == 1
    assert "failed: plan" in capfd.readouterr().out
