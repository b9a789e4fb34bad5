"""Speeds of device models: figures at first, then what was seen."""

from __future__ import annotations

import pytest

from hetsched.model import DeviceSpec
from hetsched.policy.speeds import UNKNOWN_SPEED, Shown, expected, misjudged, run_times, speeds

T4, V100, ODD = (DeviceSpec(id="gpu-0", kind="gpu", model=model) for model in ("T4", "V100", "no-figures"))


def test_before_anything_ran_the_figures_speak_and_without_them_the_sources_default() -> None:
    found = speeds({}, [T4, V100, ODD])
    assert found == pytest.approx(expected([T4, V100, ODD]))
    assert found["V100"] == 1.0 and found["T4"] == pytest.approx((0.6 * 65 / 125 + 0.3 * 320 / 900) / 0.9)
    assert found["no-figures"] == UNKNOWN_SPEED


def test_what_never_ran_is_taken_for_faster_than_its_figures_and_is_tried() -> None:
    """A V100 that ran alone for long: the T4 may be up to four times what is expected, no more."""
    before, found = expected([T4, V100]), speeds({"V100": Shown(63, 60_000)}, [T4, V100])
    assert (found["V100"] == 1.0 and found["T4"] == pytest.approx(min(1.0, 4 * before["T4"]), rel=0.03)) or found[
        "T4"
    ] == 1.0
    assert speeds({"V100": Shown(63, 60_000), "T4": Shown(63, 120_000)}, [T4, V100])["T4"] == pytest.approx(
        0.5, rel=0.05
    )


def test_runs_outweigh_figures_the_more_there_are() -> None:
    ratios = [speeds({"T4": Shown(n, 10_000), "V100": Shown(n, 20_000)}, [T4, V100])["V100"] for n in (1, 4, 64)]
    assert ratios == sorted(ratios, reverse=True) and ratios[-1] == pytest.approx(0.5, rel=0.05)


def test_what_ran_on_models_that_are_gone_tells_nothing() -> None:
    assert speeds({"gone": Shown(9, 1)}, [T4, V100]) == pytest.approx(expected([T4, V100]))


def test_figures_that_most_types_contradict_are_corrected_for_those_that_have_not_run_there_yet() -> None:
    """Ten types find the T4 twice as fast beside the V100 as its figures say; an eleventh ran on the V100 only."""
    slow_s = 1 / expected([T4, V100])["T4"]
    types = [{"V100": Shown(8, 10_000), "T4": Shown(8, round(10_000 * slow_s / 2))} for _ in range(10)]
    off = misjudged(types, [T4, V100])
    assert 1.7 < off["T4"] / off["V100"] <= 2.0
    alone = {"V100": Shown(63, 10_000)}
    before, after = run_times(alone, [T4, V100])["T4"], run_times(alone, [T4, V100], off=off)["T4"]
    assert before / after == pytest.approx(off["T4"] / off["V100"], rel=0.05)


def test_one_type_alone_does_not_make_the_figures_wrong() -> None:
    odd = [{"V100": Shown(1, 10_000), "T4": Shown(1, 10_000)}]
    assert misjudged(odd, [T4, V100])["T4"] < 1.25
    assert misjudged([{"V100": Shown(9, 10_000)}], [T4, V100]) == {"T4": 1.0, "V100": 1.0}


def test_where_models_are_scarce_less_is_tried() -> None:
    """The T4 was never tried: it may be four times as fast as expected where nobody else wants it, half as fast again where it is scarce."""
    alone, figures = {"V100": Shown(63, 10_000)}, expected([T4, V100])["T4"]
    assert speeds(alone, [T4, V100])["T4"] == 1.0
    assert speeds(alone, [T4, V100], scarce={"T4": 3.0})["T4"] == pytest.approx(1.5 * figures / 3.0, rel=0.05)
