"""Run times learned online: judged before they are learned, the same in every replay, bounded, taken along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hetsched.errors import Problem
from hetsched.model import Task, parse_task
from hetsched.policy.profiles import RUNS_KEPT, Prediction, Profile, Profiles, Together, is_size_class, size_class
from hetsched.policy.speeds import Shown
from hetsched.scheduler import messages as m
from hetsched.scheduler.view_profiles import ProfileRow, profile_json, read_profiles
from tests.scheduler.build import Story, node, task


def body(estimate: float | None = None, gpus: float = 1, **extra: Any) -> Task:
    said = {} if estimate is None else {"estimate": estimate}
    return parse_task({"id": "t", "kind": "training", "resources": {"gpu": gpus}, **said, **extra})


def learned(*seconds: float, estimate: float | None = None, model: str = "A100", limit: int = 100) -> Profiles:
    profiles = Profiles(limit)
    for one in seconds:
        profiles.learn(body(estimate), model, Together.of([round(one * 1000)]))
    return profiles


def test_quantiles_are_those_of_the_sorted_run_times() -> None:
    profile = Profile("t", "", "1", times_ms=[50, 10, 40, 20, 30, 60, 70, 80, 100, 90])
    assert [profile.quantile_ms(q) for q in (100, 500, 900, 1000)] == [10, 50, 90, 100]
    assert Profile("t", "", "1", times_ms=[7]).quantile_ms(500) == 7


def test_three_run_times_speak_where_nobody_estimated() -> None:
    assert learned(10, 20).predict(body()) is None
    assert learned(10, 20, 30).predict(body()) == Prediction(20.0, 30.0, "learned")


def test_an_estimate_is_replaced_only_where_the_profile_has_proven_better() -> None:
    wrong = learned(*[10] * 20, estimate=100)
    assert wrong.predict(body(100)) == Prediction(10.0, 10.0, "learned")
    right = learned(*[10, 90] * 10, estimate=10)  # the submitters are half right, the median is always wrong by much
    for _ in range(10):
        right.learn(body(50), "A100", Together.of([50_000]))
    assert right.predict(body(50)) == Prediction(50.0, 50.0, "estimate")
    few = learned(*[10] * 4, estimate=100)
    assert few.predict(body(100)) == Prediction(100.0, 100.0, "estimate")


def test_the_error_is_judged_before_the_run_is_learned() -> None:
    profiles = learned(10, 10, 10, 20)
    (profile,) = profiles.of()
    assert (profile.judged, profile.error_milli) == (1, 500)
    assert profiles.error() == {"training": 0.5}


def test_without_a_model_the_slowest_known_one_is_said() -> None:
    profiles = learned(10, 10, 10)
    for _ in range(3):
        profiles.learn(body(), "T4", Together.of([40_000]))
    assert profiles.predict(body()) == Prediction(40.0, 40.0, "learned")
    assert profiles.predict(body(), "A100") == Prediction(10.0, 10.0, "learned")
    assert profiles.predict(body(), "V100") is None


def test_every_model_shows_its_median() -> None:
    profiles = learned(10, 10, 10)
    assert profiles.shown("training", "1") == {"A100": Shown(3, 10_000)}
    for _ in range(3):
        profiles.learn(body(), "T4", Together.of([40_000]))
    assert profiles.shown("training", "1") == {"A100": Shown(3, 10_000), "T4": Shown(3, 40_000)}


def test_everything_is_bounded_and_the_longest_silent_goes_first() -> None:
    profiles = Profiles(2)
    for kind in ("a", "b", "a", "c"):
        profiles.learn(body(kind=kind), "A100", Together.of([1000]))
    assert [key[0] for key in profiles.by_key] == ["a", "c"]
    many = learned(*range(1, RUNS_KEPT + 50))
    (profile,) = many.of()
    assert len(profile.times_ms) == RUNS_KEPT and profile.runs == RUNS_KEPT + 49


@pytest.mark.parametrize(
    ("resources", "size"),
    [
        ({"gpu": 0.5}, "part"),
        ({"gpu": 1}, "1"),
        ({"gpu": 1.5}, "2"),
        ({"gpu": 3}, "4"),
        ({"gpu": 16}, "16"),
        ({"cpu": "100m"}, "cpu1"),
        ({"cpu": 5}, "cpu8"),
    ],
)
def test_sizes_are_powers_of_two(resources: dict[str, Any], size: str) -> None:
    assert size_class(parse_task({"id": "t", "resources": resources}).resources) == size


@pytest.mark.parametrize(
    "text", ["", "0", "3", "7x", "zz", "01", "-1", "cpu", "cpu0", "cpu3", "cpu 1", "part1", "٤", "1.0", "9" * 5000]
)
def test_what_no_task_can_be_is_no_size(text: str) -> None:
    assert not is_size_class(text)


def test_every_size_of_a_task_is_one() -> None:
    for amount in range(1, 300):
        for ask in ({"cpu": amount}, {"gpu": amount}, {"gpu": amount / 1000}, {"cpu": 0.5, "gpu": amount, "tpu": 3}):
            assert is_size_class(size_class(parse_task({"id": "t", "resources": ask}).resources))


# ---------------------------------------------------------------------- in the scheduler


def ran(one: Story, ident: str, seconds: float, **extra: Any) -> None:
    one.submit(task(ident, kind="render", resources={"gpu": 1}, **extra))
    one.now_ns += round(seconds * 1e9)
    one.end(ident)


def test_ended_attempts_teach_and_a_replay_learns_the_same() -> None:
    one = Story([node("n", gpus=1)], config={"batch": {"max_wait": 0}})
    for number in range(4):
        ran(one, f"t{number}", 10 + number)
    one.submit(task("bad", kind="render", resources={"gpu": 1}, retries=0))
    one.end("bad", ok=False, reason="exit 1")
    (row,) = one.scheduler.view.profiles("render", with_times=True)
    assert (row["model"], row["size"], row["times"]) == ("A100", "1", [10.0, 11.0, 12.0, 13.0])
    one.submit(task("now", kind="render", resources={"gpu": 1}))
    assert one.scheduler.view.explain("now")["run_time"] == {"p50": 11.0, "p90": 13.0, "source": "learned"}
    again = one.replayed()
    assert again.digest() == one.scheduler.digest()
    restored = type(again).restore(one.config, again.snapshot(), seed=1)
    assert restored.view.profiles(with_times=True) == one.scheduler.view.profiles(with_times=True)


def test_a_second_attempt_from_a_checkpoint_teaches_nothing() -> None:
    one = Story([node("n", gpus=1)], config={"batch": {"max_wait": 0}})
    one.submit(task("t", kind="render", resources={"gpu": 1}, checkpoint=5))
    one.end("t", ok=False, reason="exit 1")
    one.wait(3)
    one.end("t")
    assert one.scheduler.view.profiles("render") == []


def test_what_is_exported_can_be_imported_and_is_in_the_journal() -> None:
    there, here = (Story([node("n", gpus=1)], config={"batch": {"max_wait": 0}}) for _ in range(2))
    for number in range(3):
        ran(there, f"t{number}", 10)
    rows = [ProfileRow(**{k: row[k] for k in ("type", "model", "size", "times", "runs")})
            for row in there.scheduler.view.profiles(with_times=True)]  # fmt: skip
    assert here.ask(m.ImportProfiles(profiles=read_profiles(rows, 10))) == {"imported": 1}
    (row,) = here.scheduler.view.profiles(with_times=True)
    assert row["times"] == [10.0] * 3 and row["error"] is None
    assert here.replayed().digest() == here.scheduler.digest()


@pytest.mark.parametrize(
    ("row", "pointer"),
    [
        ({"type": "", "size": "1", "times": [1]}, "/profiles/0/type"),
        ({"type": "t", "size": "x" * 65, "times": [1]}, "/profiles/0/size"),
        ({"type": "t", "size": "1", "model": "a\x1b", "times": [1]}, "/profiles/0/model"),
        ({"type": "t", "size": "1", "times": []}, "/profiles/0/times"),
        ({"type": "t", "size": "1", "times": [1] * 65}, "/profiles/0/times"),
        ({"type": "t", "size": "1", "times": [-1]}, "/profiles/0/times"),
        ({"type": "t", "size": "1", "times": [float("inf")]}, "/profiles/0/times"),
        ({"type": "t", "size": "1", "times": [1], "runs": -1}, "/profiles/0/runs"),
    ],
)
def test_hostile_rows_are_refused_by_pointer(row: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Problem) as refused:
        read_profiles([ProfileRow(**row)], 10)
    assert refused.value.errors[0]["pointer"] == pointer
    with pytest.raises(Problem):
        read_profiles([ProfileRow(type="t", size="1", times=[1.0])] * 3, 2)


def test_an_empty_profile_is_rendered_without_quantiles() -> None:
    row = profile_json(Profile("t", "", "1"), with_times=False)
    assert row["p50"] is None and row["error"] is None and not row["replaces_estimate"]


def test_the_example_of_the_documentation_does_what_it_says(root: Path) -> None:
    text = (root / "docs" / "profiles.md").read_text()
    example = yaml.safe_load(text.split("```yaml")[1].split("```")[0])
    one = Story(example["nodes"], config=example["config"])
    for number in range(3):  # fill the first node, so that both learn
        pair = [f"{side}-{number}-{at}" for side in "ab" for at in range(4)]
        for ident in pair:
            one.submit(task(ident, cpu=0, kind="render", resources={"gpu": 1}))
        for seconds in (10, 30):
            one.now_ns += round(seconds * 1e9)
            for ident in pair:
                if one.state(ident) == "running":
                    model = "T4" if one.node_of(ident) == "slow" else "A10"
                    if example["seconds"][model] == (10 if seconds == 10 else 40):
                        one.end(ident)
    one.submit(task("next", kind="render", resources={"gpu": 1}))
    assert one.node_of("next") == "fast"
