"""Reading graphs: what is wrong is named by its place, and nothing of it gets in."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.errors import Problem
from hetsched.model.read_graph import parse_graph

X: dict[str, Any] = {"id": "x", "cost": 1, "resources": {"cpu": 1}}
Y: dict[str, Any] = {"id": "y", "cost": 1, "resources": {"cpu": 1}, "after": ["x"]}


def faults(body: Any) -> dict[str, str]:
    with pytest.raises(Problem) as refused:
        parse_graph(body)
    return {fault["pointer"]: fault["detail"] for fault in refused.value.errors}


def operators(*entries: Any, **more: Any) -> dict[str, Any]:
    return {"operators": list(entries), **more}


def test_a_graph_is_read_in_whatever_order_it_is_written() -> None:
    graph = parse_graph(operators(Y, X, id="g"))
    assert [one.id for one in graph.operators] == ["y", "x"]
    assert graph.operators[0].after[0].parent == 1
    assert graph.order == (1, 0)


def test_samples_and_template_are_for_all() -> None:
    one = {"id": "d", "cost_per_sample": 0.5, "chunk": 7}
    graph = parse_graph(operators(one, samples=100, template={"resources": {"gpu": 1}, "queue": "q"}))
    (read,) = graph.operators
    assert (read.begin, read.end, read.work, read.chunk, read.is_divisible) == (0, 100, 50.0, 7, True)
    assert read.tasks[0].queue == "q"


def test_a_pattern_picks_the_kinds_and_alternatives_differ_from_the_rest() -> None:
    (read,) = parse_graph(operators({"id": "m", "cost": 1, "pattern": "tensor-op"})).operators
    assert [body.resources.devices[0].kind for body in read.tasks] == ["tpu", "npu", "gpu"]
    two = {
        "id": "m",
        "cost": 1,
        "env": {"A": "1"},
        "alternatives": [{"resources": {"gpu": 1}}, {"resources": {"cpu": 8}}],
    }
    (read,) = parse_graph(operators(two)).operators
    assert [(len(body.resources.devices), body.env) for body in read.tasks] == [(1, {"A": "1"}), (0, {"A": "1"})]


def test_a_cycle_is_named() -> None:
    told = faults(
        operators({**X, "after": ["z"]}, Y, {**Y, "id": "z", "after": ["y"]}, {**Y, "id": "below", "after": ["z"]})
    )
    assert list(told) == ["/operators/1/after"]
    assert "y -> z -> x -> y" in told["/operators/1/after"]
    assert "/operators/0/after" in faults(operators({**X, "after": ["x"]}))


BAD: list[tuple[Any, str]] = [
    ([], ""),
    ({}, ""),
    (operators(), "/operators"),
    (operators(3), "/operators/0"),
    (operators(X, X), "/operators/1/id"),
    (operators(Y), "/operators/0/after/0"),
    (operators({**X, "after": [{"data": 1}]}), "/operators/0/after/0"),
    (operators(X, {**Y, "after": [{"id": "x", "data": "1Qi"}]}), "/operators/1/after/0/data"),
    (operators({**X, "cost": -1}), "/operators/0/cost"),
    (operators({**X, "cost": float("nan")}), "/operators/0/cost"),
    (operators({**X, "cost": True}), "/operators/0/cost"),
    (operators({"id": "x", "resources": {"cpu": 1}}), "/operators/0"),
    (operators({**X, "cost_per_sample": 1}), "/operators/0"),
    (operators({"id": "x", "cost_per_sample": 1, "resources": {"cpu": 1}}), "/operators/0"),
    (operators({**X, "samples": 5}), "/operators/0/samples"),
    (operators({**X, "chunk": 5}), "/operators/0/chunk"),
    (operators({"id": "x", "cost_per_sample": 1e9, "samples": 2**53, "resources": {"cpu": 1}}), "/operators/0"),
    (operators(X, samples=0), "/samples"),
    (operators(X, samples={"begin": 5, "end": 5}), "/samples/end"),
    (operators(X, samples={"begin": -1, "end": 5}), "/samples/begin"),
    (operators(X, samples="all"), "/samples"),
    (
        operators(
            {"id": "x", "cost_per_sample": 1, "samples": {"begin": 0, "end": 9}, "resources": {"cpu": 1}}, samples=5
        ),
        "/operators/0/samples",
    ),
    (operators({**X, "speeds": {"A100": 0}}), "/operators/0/speeds/A100"),
    (operators({**X, "resources": {"cpu": "x"}}), "/operators/0/resources/cpu"),
    (operators({**X, "rsources": {}}), "/operators/0/rsources"),
    (operators({**X, "gang": {"id": "g", "size": 2}}), "/operators/0/gang"),
    (operators({**X, "deadline": 5}), "/operators/0/deadline"),
    (operators({**X, "id": "a/b"}), "/operators/0/id"),
    (operators({**X, "id": 7}), "/operators/0/id"),
    (operators({**X, "alternatives": []}), "/operators/0/alternatives"),
    (operators({**X, "alternatives": [3]}), "/operators/0/alternatives/0"),
    (operators({**X, "alternatives": [{"resources": {"cpu": -1}}]}), "/operators/0/alternatives/0/resources/cpu"),
    (operators({"id": "x", "cost": 1}), "/operators/0"),
    (operators(X, template=3), "/template"),
    (operators(X, template={"cost": 3}), "/template/cost"),
    (operators(X, template={"id": "t"}), "/template/id"),
    (operators(X, template={"queu": "x"}), "/template/queu"),
    (operators(X, template={"gang": {"id": "g", "size": 2}}), "/template/gang"),
    (operators(X, Y, template={"qos": "high"}), "/template/qos"),
    (operators({"id": "x", "cost": 1}, template={"resources": {"cpu": "x"}}), "/template/resources/cpu"),
    (
        operators({**X, "alternatives": [{"resorces": {}}]}, template={"labels": 3}),
        "/operators/0/alternatives/0/resorces",
    ),
    (operators({**X, "alternatives": [{"resources": {"gpu": 1}}]}, template={"labels": 3}), "/template/labels"),
    (operators({**X, "env": 3, "alternatives": [{"resources": {"gpu": 1}}, {}]}), "/operators/0/env"),
    (operators({**X, "alternatives": [{"gang": {"id": "g", "size": 2}}]}), "/operators/0/alternatives/0/gang"),
    (operators(X, id="a/b"), "/id"),
    (operators(X, id="a" * 65), "/id"),
    (operators(X, nodes=[]), "/nodes"),
]


@pytest.mark.parametrize(("body", "pointer"), BAD, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_named_by_its_place(body: Any, pointer: str) -> None:
    assert pointer in faults(body)


def test_what_the_template_says_wrong_is_told_once_and_not_of_operators_that_say_it_themselves() -> None:
    bad = {"qos": "high", "resources": {"cpu": -1}, "prio": 1}
    assert list(faults(operators({"id": "a", "cost": 1}, {**X, "qos": "critical"}, Y, template=bad))) == [
        "/template/prio",
        "/template/qos",
        "/template/resources/cpu",
    ]
    assert list(faults(operators({**X, "qos": "critical"}, template={"qos": "high", "prio": 1}))) == ["/template/prio"]


@pytest.mark.parametrize(
    ("slip", "meant"),
    [("cots", "cost"), ("cost_per_sampel", "cost_per_sample"), ("sampels", "samples"), ("prioriyt", "priority")],
)
def test_a_slip_in_an_operator_is_answered_with_the_nearest_of_its_fields_and_a_task_s(slip: str, meant: str) -> None:
    told = faults(operators({"id": "x", "resources": {"cpu": 1}, slip: 1}))
    assert told[f"/operators/0/{slip}"] == f'unknown field "{slip}"; did you mean "{meant}"?'


def test_more_operators_than_may_be() -> None:
    with pytest.raises(Problem, match=r"limits\.graph_operators"):
        parse_graph(operators(*({**X, "id": f"o{i}"} for i in range(11))), most=10)


def test_ten_thousand_operators_are_read_in_a_moment() -> None:
    wide = [{**X, "id": f"o{i}", "after": [f"o{i - 1}"] if i % 100 else []} for i in range(10_000)]
    assert len(parse_graph(operators(*wide)).operators) == 10_000


def test_the_faults_of_a_hostile_body_are_bounded() -> None:
    with pytest.raises(Problem) as refused:
        parse_graph(operators(*({"id": f"o{i}", "cost": 1, "after": ["nobody"]} for i in range(2_000))))
    assert len(refused.value.errors) == 50
