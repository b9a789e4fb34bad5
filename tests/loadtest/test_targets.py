"""Targets pass and fail as written; what was not measured does not pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.targets import TargetError, judge, read_targets

REPORT = {"errors": {"rate": 0.0}, "scheduling": {"p99_ms": 12.5}, "tpu_queue_wait": {"count": 0}}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "targets.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("line", "reached"),
    [
        ('"errors.rate" = "== 0"', True),
        ('"errors.rate" = "> 0"', False),
        ('"scheduling.p99_ms" = "<= 12.5"', True),
        ('"scheduling.p99_ms" = "< 12.5"', False),
        ('"scheduling.p99_ms" = ">= 12"', True),
        ('"scheduling.p99_ms" = "!= 12.5"', False),
        ('"tpu_queue_wait.p99_ms" = "<= 1e9"', False),
        ('"no.such.figure" = ">= 0"', False),
        ('"errors" = ">= 0"', False),
    ],
)
def test_a_target_is_reached_or_missed(tmp_path: Path, line: str, reached: bool) -> None:
    (verdict,) = judge(read_targets(written(tmp_path, f"[targets]\n{line}\n")), REPORT)
    assert verdict.reached is reached


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[targets]\n"a" = 5', "expected text like"),
        ('[targets]\n"a" = "=> 5"', "expected text like"),
        *((f'[targets]\n"a" = "<= {number}"', "is no number") for number in ("soon", "nan", "inf", "1e999")),
        ('[targets]\n"a" = ' + "9" * 5000, "targets.toml"),
        ('[target]\n"a" = "<= 5"', "not 'target'"),
        ('[targets\n"a" = "<= 5"', "targets.toml"),
        ("", "one table"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(TargetError, match=complaint):
        read_targets(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"absent\.toml"):
        read_targets(tmp_path / "absent.toml")
