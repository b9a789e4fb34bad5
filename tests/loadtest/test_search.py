"""The saturation search finds the limit of a pretended server, whatever the rate it begins at."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.options import Options, parse
from loadtest.search import search
from loadtest.tally import Figures
from loadtest.targets import Target


@pytest.mark.parametrize("first", ["100", "900", "1500", "20000"])
def test_the_highest_rate_that_reaches_the_targets_is_found(first: str, tmp_path: Path) -> None:
    tried: list[float] = []

    def measure(options: Options) -> Figures:
        tried.append(options.rps)
        return {"scheduling": {"p99_ms": 10.0 if options.rps <= 1000 else 400.0}, "rate": options.rps}

    options = parse(["--rps", first, "--search", "--targets", str(tmp_path / "slo.toml")])
    figures = search(options, [Target("scheduling.p99_ms", "<=", 100.0)], measure)
    assert 1000 / 1.1 <= figures["search"]["best_per_s"] <= 1000
    assert figures["rate"] == figures["search"]["best_per_s"]
    assert {each["rate_per_s"] for each in figures["search"]["tried"]} == set(tried)
    assert len(tried) <= 24


def test_one_hiccup_is_not_a_limit(tmp_path: Path) -> None:
    seen: set[float] = set()

    def measure(options: Options) -> Figures:
        hiccup = options.rps not in seen
        seen.add(options.rps)
        return {"errors": {"rate": 1.0 if hiccup or options.rps > 500 else 0.0}}

    options = parse(["--rps", "100", "--search", "--targets", str(tmp_path / "slo.toml")])
    assert search(options, [Target("errors.rate", "==", 0.0)], measure)["search"]["best_per_s"] > 450


def test_a_server_that_reaches_nothing_is_not_searched_for_ever(tmp_path: Path) -> None:
    options = parse(["--rps", "64", "--search", "--targets", str(tmp_path / "slo.toml")])
    figures = search(options, [Target("errors.rate", "==", 0.0)], lambda _: {"errors": {"rate": 1.0}})
    assert figures["search"]["best_per_s"] == 0
    assert figures["errors"]["rate"] == 1.0
