"""A good body becomes a normalised task, and the task becomes the same body again."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import Problem
from hetsched.model import (
    Dependency,
    DeviceAsk,
    GangRef,
    Guarantee,
    Qos,
    Resources,
    Task,
    TaskDefaults,
    Topology,
    Usage,
    parse_task,
    task_to_json,
)


def asks(**resources: Any) -> tuple[DeviceAsk, ...]:
    return parse_task({"resources": resources}).resources.devices


def refused(**body: Any) -> dict[str, str]:
    """pointer → rule of everything that is wrong with a body."""
    with pytest.raises(Problem) as caught:
        parse_task({"resources": {}, **body})
    assert caught.value.status == 422
    return {error["pointer"]: error["detail"] for error in caught.value.errors}


def test_defaults_follow_from_qos_and_limits() -> None:
    task = parse_task({"resources": {"cpu": 1}})
    assert (task.qos, task.guarantee, task.preemptible) == (Qos.production, Guarantee.guaranteed, False)
    assert parse_task({"resources": {}, "qos": "background"}).preemptible
    assert not parse_task({"resources": {}, "qos": "background", "preemptible": False}).preemptible
    assert parse_task({"resources": {"cpu": 1}, "limits": {"cpu": 2}}).guarantee is Guarantee.burstable


def test_devices_are_whole_ones_and_parts() -> None:
    assert asks(gpu=2) == (DeviceAsk(kind="gpu", whole=2),)
    assert asks(gpu=0.5) == (DeviceAsk(kind="gpu", parts=1, part_milli=500),)
    assert asks(gpu=2.5) == (DeviceAsk(kind="gpu", whole=2, parts=1, part_milli=500),)
    assert asks(gpu=0) == ()
    long = {"count": 2, "memory": "20Gi", "share": 0.5, "model": ["A100", "H100"]}
    ask = DeviceAsk(kind="gpu", parts=2, part_milli=500, memory_bytes=20 * 2**30, models=("A100", "H100"))
    assert asks(gpu=long) == (ask,)
    assert asks(gpu={}) == (DeviceAsk(kind="gpu", whole=1),)
    assert asks(gpu={"share": 1, "count": 3}) == (DeviceAsk(kind="gpu", whole=3),)


def test_kubernetes_names_are_aliases() -> None:
    assert asks(**{"nvidia.com/gpu": 1}) == asks(gpu=1)
    assert asks(**{"huawei.com/Ascend910": 1}) == asks(npu=1)
    assert asks(**{"google.com/tpu": 1, "amd.com/gpu": 2}) == asks(tpu=1, gpu=2)
    assert "/resources/gpu" in refused(resources={"nvidia.com/gpu": 1, "gpu": 1})


def test_memory_of_each_device() -> None:
    assert asks(gpu=2, gpu_memory="20Gi") == (DeviceAsk(kind="gpu", whole=2, memory_bytes=20 * 2**30),)
    assert "/resources/gpu_memory" in refused(resources={"gpu_memory": "20Gi"})
    assert "/resources/gpu_memory" in refused(resources={"gpu": {"memory": "1Gi"}, "gpu_memory": "2Gi"})


def test_models_go_to_the_one_kind_that_is_asked() -> None:
    task = parse_task({"resources": {"gpu": 1}, "models": ["H100", "A100"]})
    assert task.resources.devices[0].models == ("H100", "A100")
    assert "/models" in refused(resources={"gpu": 1, "tpu": 1}, models=["A100"])
    assert parse_task({"resources": {"cpu": 1}, "models": ["A100"]}).resources.devices == ()


@pytest.mark.parametrize(
    ("inside", "beside", "both"),
    [
        (["V100"], ["A100", "V100"], ("V100",)),
        (["V100", "A100", "T4"], ["A100", "H100", "V100"], ("A100", "V100")),
        (["A100"], ["A100"], ("A100",)),
        (["A100"], ["V100"], None),
    ],
)
def test_models_inside_an_ask_and_beside_it_hold_both(inside: list[str], beside: list[str], both: Any) -> None:
    body = {"resources": {"gpu": {"count": 1, "model": inside}}, "models": beside}
    if both is None:
        assert "none is in both" in refused(**body)["/models"]
    else:
        assert parse_task(body).resources.devices[0].models == both


def test_deadlines_are_relative_or_moments() -> None:
    assert parse_task({"resources": {}, "deadline": 1.5}).deadline_ns == 1_500_000_000
    moment = parse_task({"resources": {}, "deadline": "1970-01-02T01:00:00.25+01:00"})
    assert (moment.deadline_ns, moment.deadline_absolute) == (86_400_250_000_000, True)
    yaml = parse_task({"resources": {}, "deadline": datetime.datetime(1970, 1, 2)})
    assert (yaml.deadline_ns, yaml.deadline_absolute) == (86_400_000_000_000, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-02-30T00:00:00Z",
        "2026-01-01T25:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-01-01T00:00:00Z",
        "2026-01-01T00:00:00+99:00",
        "2026-01-01T00:00:61Z",
        "1970-01-01T00:00:00+23:59",
        "2" * 5000,
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    assert "/deadline" in refused(deadline=text)


def test_nested_fields() -> None:
    task = parse_task(
        {
            "resources": {"cpu": 1},
            "gang": {"id": "g", "size": 4},
            "topology": {"same": "rack"},
            "after": ["a", {"id": "b", "when": "ended"}, "a"],
            "node_selector": {"zone": "z1", "rack": ["r1", "r2"]},
            "usage": {"cpu": 0.5},
        }
    )
    assert task.gang == GangRef(id="g", size=4, min_size=4)
    assert task.topology == Topology(same="rack", required=False)
    assert task.after == (Dependency(id="a"), Dependency(id="b", when="ended"))
    assert task.node_selector == {"zone": ("z1",), "rack": ("r1", "r2")}
    assert task.usage == Usage(cpu_milli=500)


@pytest.mark.parametrize("usage", [0.25, [{"cpu": 1}, {"at": 5, "part": 0.5}], [{"at": 5, "cpu": 1}]])
def test_usage_may_be_a_part_or_steps(usage: Any) -> None:
    task = parse_task({"resources": {"cpu": 1}, "usage": usage})
    assert parse_task(task_to_json(task)) == task


@pytest.mark.parametrize("usage", [1.5, -1, "much", [], [{"at": 5}, {"at": 5}], {"part": 2}, [0.5, {"at": 0}]])
def test_usage_that_cannot_be_meant_is_refused(usage: Any) -> None:
    assert any(pointer.startswith("/usage") for pointer in refused(usage=usage))


def test_the_configured_cpu_is_for_those_who_say_none() -> None:
    defaults = TaskDefaults(cpu_milli=250)
    assert parse_task({"resources": {}}, defaults).resources.cpu_milli == 250
    assert parse_task({"command": ["true"]}, defaults).resources.cpu_milli == 250
    assert parse_task({"resources": {"cpu": 0}}, defaults).resources.cpu_milli == 0


def test_all_faults_come_at_once() -> None:
    faults = refused(priorty=4, priority=2000, resources={"cpu": -1, "gpu": True}, id="a b")
    assert set(faults) == {"/priorty", "/priority", "/resources/cpu", "/resources/gpu", "/id"}
    assert 'did you mean "priority"?' in faults["/priorty"]


def test_rules_between_fields() -> None:
    with pytest.raises(Problem, match="needs resources or command"):
        parse_task({"id": "x"})
    assert "/after/0" in refused(id="a", after=["a"])
    assert "/gang/min_size" in refused(gang={"id": "g", "size": 2, "min_size": 3})
    assert "/limits/cpu" in refused(resources={"cpu": 2}, limits={"cpu": 1})
    assert "/tolerations/0/value" in refused(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}])


words = st.text("abcXYZ019._-", min_size=1, max_size=12)
amounts = st.integers(0, 10**6).map(lambda milli: milli / 1000)
devices = st.one_of(
    st.integers(0, 16),
    st.integers(1, 4000).map(lambda milli: milli / 1000),
    st.fixed_dictionaries(
        {"count": st.integers(1, 8), "share": st.sampled_from([0.25, 0.5, 1])},
        optional={"memory": st.integers(0, 10**12), "model": st.lists(words, min_size=1, max_size=3)},
    ),
)
bodies = st.fixed_dictionaries(
    {
        "resources": st.fixed_dictionaries(
            {}, optional={"cpu": amounts, "memory": st.integers(0, 2**53), "gpu": devices, "tpu": devices}
        )
    },
    optional={
        "id": words,
        "qos": st.sampled_from([str(qos) for qos in Qos]),
        "preemptible": st.booleans(),
        "priority": st.integers(-1000, 1000),
        "labels": st.dictionaries(words, words, max_size=3),
        "node_selector": st.dictionaries(words, st.one_of(words, st.lists(words, min_size=1, max_size=3)), max_size=2),
        "tolerations": st.lists(st.fixed_dictionaries({"key": words, "operator": st.just("Exists")}), max_size=2),
        "data": st.lists(words, max_size=2),
        "gang": st.fixed_dictionaries({"id": words, "size": st.integers(1, 9)}),
        "after": st.lists(
            st.fixed_dictionaries({"id": words.map("p/".__add__), "when": st.sampled_from(["ended", "failed"])}),
            max_size=2,
        ),
        "deadline": st.one_of(st.integers(0, 10**6), st.just("2026-05-01T10:00:00.5Z")),
        "estimate": st.floats(0, 1e6),
        "retries": st.integers(0, 9),
        "command": st.lists(words, min_size=1, max_size=4),
        "env": st.dictionaries(words, st.text("ab =", max_size=5), max_size=2),
        "duration": st.floats(0, 1e6),
        "checkpoint": st.floats(0.1, 1e3),
        "usage": st.fixed_dictionaries(
            {}, optional={"cpu": amounts, "memory": st.integers(0, 9999), "part": st.sampled_from([0, 0.25, 1])}
        ),
    },
)


@given(bodies)
def test_a_rendered_task_reads_back_as_the_same_task(body: dict[str, Any]) -> None:
    task = parse_task(body)
    assert parse_task(task_to_json(task)) == task


def test_the_smallest_task() -> None:
    assert parse_task({"command": ["true"]}) == Task(command=("true",), resources=Resources())
