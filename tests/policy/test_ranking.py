"""Presets at work: whole schedulers, tiny clusters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hetsched.config.rules import PRESETS as CONFIGURED
from hetsched.config.rules import TERMS as CONFIGURABLE
from hetsched.policy.presets import OWN_PRESETS, TERMS, WEIGHTS
from hetsched.scheduler.scheduler import PRESETS
from tests.scheduler.build import Story, node, task


def story(nodes: list[dict[str, Any]], **policy: Any) -> Story:
    return Story(nodes, config={"policy": policy, "batch": {"max_wait": 0}})


def gpu_task(ident: str, gpus: float = 1, **extra: Any) -> dict[str, Any]:
    return task(ident, resources={"gpu": gpus}, **extra)


def test_the_configuration_knows_every_preset_and_term() -> None:
    assert set(CONFIGURED) == set(PRESETS) and set(WEIGHTS) <= set(CONFIGURED)
    assert set(CONFIGURABLE) == set(TERMS)


def test_affinity_sends_matrix_work_to_the_fastest_free_device() -> None:
    one = story([node("t4", gpus=1, model="T4"), node("h100", gpus=1, model="H100"), node("v100", gpus=1, model="V100")],
                preset="affinity")  # fmt: skip
    for ident in ("a", "b", "c"):
        one.submit(gpu_task(ident, pattern="matrix-heavy"))
    assert [one.node_of(ident) for ident in ("a", "b", "c")] == ["h100", "v100", "t4"]


def test_a_node_that_joins_later_is_ranked_too() -> None:
    from hetsched.model import parse_node
    from hetsched.scheduler import messages as m

    one = story([node("t4", gpus=2, model="T4")], preset="affinity")
    one.submit(gpu_task("a"))
    (spec,) = parse_node(node("h100", gpus=2, model="H100"))
    one.step(m.NodeJoined(node=spec, session=1))
    one.submit(gpu_task("b"))
    assert (one.node_of("a"), one.node_of("b")) == ("t4", "h100")


def test_data_is_worth_half_again_and_no_more() -> None:
    """A V100 with the data beats one without, and not an H100 (CONTRACT: nodes holding it score higher; sources: x 1.5)."""
    nodes = [node("plain", gpus=1, model="V100"), node("data", gpus=1, model="V100", volumes=["set"])]
    near = story(nodes, preset="affinity")
    near.submit(gpu_task("t", data=["set"]))
    assert near.node_of("t") == "data"
    far = story([*nodes, node("h100", gpus=1, model="H100")], preset="affinity")
    far.submit(gpu_task("t", data=["set"]))
    assert far.node_of("t") == "h100"


def test_least_loaded_spreads_by_all_that_a_node_has() -> None:
    one = story([node("a", cpu=8), node("b", cpu=8)], preset="least-loaded")
    for ident in ("t1", "t2", "t3", "t4"):
        one.submit(task(ident, cpu=2))
    assert sorted(filter(None, map(one.node_of, ("t1", "t2", "t3", "t4")))) == ["a", "a", "b", "b"]


def test_parts_are_packed_on_devices_whatever_ranks_the_nodes() -> None:
    for preset in ("affinity", "multi-criteria", "least-loaded"):
        one = story([node("n", gpus=4)], preset=preset)
        for ident, share in (("big", 0.7), ("half", 0.5), ("third", 0.3), ("whole", 1)):
            one.submit(gpu_task(ident, share))
        devices = {ident: one.task(ident)["placement"]["devices"][0]["id"] for ident in ("big", "half", "third")}
        assert devices["third"] == devices["big"] != devices["half"]


EDGE = [
    node("far-fast", gpus=1, model="A100", network_delay=0.05),
    node("near-slow", gpus=1, model="A10", network_delay=0.001),
]


def test_training_leans_on_performance_and_edge_inference_on_delay() -> None:
    for kind, expected in (("training", "far-fast"), ("edge-inference", "near-slow")):
        one = story(EDGE, preset="multi-criteria")
        one.submit(gpu_task("t", kind=kind))
        assert one.node_of("t") == expected


def test_weights_by_type_of_task_are_the_operator_s() -> None:
    one = story(EDGE, preset="multi-criteria", types={"report": {"delay": 1.0, "performance": 0.0, "power": 0.0}})
    one.submit(gpu_task("t", kind="report"))
    assert one.node_of("t") == "near-slow"


def test_terms_can_be_laid_over_a_preset_of_the_core() -> None:
    nodes = [node("t4", gpus=4, model="T4"), node("h100", gpus=4, model="H100")]
    plain, leaning = story(nodes), story(nodes, weights={"performance": 5})
    for one in (plain, leaning):
        one.submit(gpu_task("t"))
    assert (plain.node_of("t"), leaning.node_of("t")) == ("t4", "h100")


def test_explain_names_every_term_its_weight_and_its_source() -> None:
    one = story(EDGE, preset="multi-criteria")
    one.submit(gpu_task("t"))
    told = one.scheduler.view.explain("t")["terms"]
    assert {row["term"]: row["weight"] for row in told} == {
        "performance": 0.4,
        "delay": 0.2,
        "power": 0.3,
        "priority": 0.1,
    }
    for row in told:
        assert 0 <= row["value"] <= 1 and row["what"] and row["source"]


@pytest.mark.parametrize("preset", [*OWN_PRESETS])
def test_explain_names_the_formula_of_every_preset_of_the_core(preset: str) -> None:
    one = story([node("a", gpus=2), node("b", gpus=2)], preset=preset)
    one.submit(gpu_task("t"))
    (row,) = one.scheduler.view.explain("t")["terms"]
    assert (row["term"], row["preset"], row["weight"]) == ("preset", preset, 1.0) and row["what"] and row["source"]
    has_score = preset not in ("first-fit", "random")
    assert (row["value"] is not None) == has_score and (not has_score or 0 <= row["value"] <= 1)
    assert ("parts" in row) == (preset == "price")


def test_explain_of_a_price_adds_up_to_what_nodes_are_compared_by() -> None:
    """Before any device task is known a device is worth its size, and goes with 11 cores and 40 GiB. Here: 4 GPUs with 22 cores, so two of
    them stand without cores; a task of one GPU and 22 cores takes one, and strands the three that stay."""
    one = story([node("a", cpu=22, memory="1Ti", gpus=4)])
    one.scheduler._pricer = None  # as priced at the start
    one.submit(task("t", cpu=22, resources={"gpu": 1}))
    (row,) = one.scheduler.view.explain("t")["terms"]
    parts = {part["part"]: part["value"] for part in row["parts"]}
    half_of_three_instead_of_two = pytest.approx(500, abs=1)  # rates are fixed-point
    assert parts == {
        "devices": 1000,
        "premium": 0,
        "apart": 0,
        "cpu": half_of_three_instead_of_two,
        "memory": 0,
        "wide": 0,
    }
    assert row["loses"] == sum(parts.values())


def test_asking_why_a_task_is_where_it_is_changes_nothing() -> None:
    one = story([node("a", gpus=4, cpu=22), node("b", gpus=4)])
    for at in range(60):
        one.submit(task(f"t{at}", cpu=0.5, resources={"gpu": 0.125 * (1 + at % 3)}))
    before = one.scheduler.digest(), one.scheduler.snapshot()
    for at in range(60):
        if one.node_of(f"t{at}"):
            assert one.scheduler.view.explain(f"t{at}")["terms"]
    one.scheduler.core.check()
    assert (one.scheduler.digest(), one.scheduler.snapshot()) == before


def test_a_task_whose_devices_are_promised_already_is_explained_without_numbers() -> None:
    one = story([node("a", gpus=1)])
    one.submit(gpu_task("victim", qos="background"))
    one.submit(gpu_task("first", qos="critical"))
    assert one.state("victim") == "stopping"
    (row,) = one.scheduler.view.explain("victim")["terms"]
    assert row["preset"] == "price" and row["value"] is None and "parts" not in row


def test_a_restart_ranks_as_before() -> None:
    nodes = [node("t4", gpus=2, model="T4"), node("h100", gpus=2, model="H100")]
    one = story(nodes, preset="affinity")
    one.submit(gpu_task("a"))
    again = one.replayed()
    assert again.digest() == one.scheduler.digest()
    one.scheduler = type(again).restore(one.config, again.snapshot(), seed=1)
    one.scheduler.resume()
    one.submit(gpu_task("b"))
    assert one.node_of("b") == "h100"


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ({"weights": {"speed": 1}}, "policy.weights"),
        ({"weights": {"power": -1}}, "policy.weights.power"),
        ({"types": {"training": {"power": 101}}}, "policy.types.training.power"),
        ({"scorers": {"load": 1}}, "policy.scorers.load"),
        ({"locality": 0.5}, "policy.locality"),
        ({"scorer_budget": 0}, "policy.scorer_budget"),
    ],
)
def test_wrong_weights_are_refused_by_name(policy: dict[str, Any], fault: str) -> None:
    from hetsched.config import from_mapping
    from hetsched.errors import ConfigError

    with pytest.raises(ConfigError, match=re.escape(fault)):
        from_mapping({"policy": policy})


def test_the_example_of_the_documentation_does_what_it_says(root: Path) -> None:
    text = (root / "docs" / "ranking.md").read_text()
    example = yaml.safe_load(text.split("```yaml")[1].split("```")[0])
    one = Story(example["nodes"], config=example["config"])
    for event in example["events"]:
        one.submit(event["submit"])
        one.wait(1)
    expected = dict(re.findall(r"`(\S+)` goes to `(\S+)`", text))
    assert expected and {ident: one.node_of(ident) for ident in expected} == expected


def test_every_term_and_preset_is_documented(root: Path) -> None:
    text = (root / "docs" / "ranking.md").read_text()
    assert [word for word in (*TERMS, *WEIGHTS) if f"`{word}`" not in text] == []
