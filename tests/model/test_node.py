"""Groups of nodes and devices are counted out; queues keep their amounts."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.errors import Problem
from hetsched.model import QueueSpec, Taint, parse_node, parse_queue


def test_a_count_numbers_the_nodes_and_one_leaves_the_name() -> None:
    assert [node.name for node in parse_node({"name": "a-", "count": 2})] == ["a-0", "a-1"]
    assert [node.name for node in parse_node({"name": "a", "count": 1})] == ["a"]


def test_devices_are_numbered_by_kind_through_all_groups() -> None:
    groups = [
        {"kind": "gpu", "model": "A100", "count": 2},
        {"kind": "tpu"},
        {"kind": "gpu", "memory": "40Gi", "numa": 1},
    ]
    (node,) = parse_node({"name": "n", "cpu": "64", "memory": "1Ti", "devices": groups})
    assert [device.id for device in node.devices] == ["gpu-0", "gpu-1", "tpu-0", "gpu-2"]
    assert [device.memory_bytes for device in node.devices] == [None, None, None, 40 * 2**30]
    assert (node.cpu_milli, node.memory_bytes) == (64_000, 2**40)


def test_a_switch_has_a_name_or_a_number() -> None:
    groups = [{"kind": "gpu", "pcie": "left", "nvlink": "a"}, {"kind": "gpu", "pcie": 1}, {"kind": "gpu"}]
    (node,) = parse_node({"name": "n", "devices": groups})
    assert [device.pcie for device in node.devices] == ["left", "1", None]


def test_taints_have_an_effect() -> None:
    (node,) = parse_node({"name": "n", "taints": [{"key": "spot"}, {"key": "a", "value": "b", "effect": "NoExecute"}]})
    assert node.taints == (Taint(key="spot"), Taint(key="a", value="b", effect="NoExecute"))


@pytest.mark.parametrize(
    ("raw", "pointer"),
    [
        ({}, ""),
        ([], ""),
        ({"name": "a b"}, "/name"),
        ({"name": "a", "count": 0}, "/count"),
        ({"name": "a", "cpus": 4}, "/cpus"),
        ({"name": "a", "devices": [{"model": "A100"}]}, "/devices/0"),
        ({"name": "a", "devices": [{"kind": "GPU"}]}, "/devices/0/kind"),
        ({"name": "a", "devices": [{"kind": "gpu", "pcie": -1}]}, "/devices/0/pcie"),
        ({"name": "a", "devices": [{"kind": "gpu", "pcie": True}]}, "/devices/0/pcie"),
        ({"name": "a", "devices": [{"kind": "gpu", "count": 65}]}, "/devices/0/count"),
        ({"name": "a", "devices": [{"kind": "gpu", "count": 40}] * 2}, "/devices"),
        ({"name": "a", "taints": [{"effect": "NoSchedule"}]}, "/taints/0"),
        ({"name": "a", "cpu": -1}, "/cpu"),
    ],
)
def test_what_is_no_node_is_refused(raw: Any, pointer: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_node(raw)
    assert pointer in [error["pointer"] for error in caught.value.errors]


def test_a_queue_keeps_its_amounts_in_our_units() -> None:
    queue = parse_queue(
        {"name": "a/b", "weight": 2, "guaranteed": {"gpu": 8, "cpu": "500m"}, "limit": {"gpu": 16, "memory": "1Gi"}}
    )
    assert queue == QueueSpec(
        name="a/b", weight=2, guaranteed={"gpu": 8000, "cpu": 500}, limit={"gpu": 16_000, "memory": 2**30}
    )


def test_a_queue_is_never_promised_more_than_it_may_have() -> None:
    with pytest.raises(Problem, match="at most limit"):
        parse_queue({"name": "a", "guaranteed": {"gpu": 2}, "limit": {"gpu": 1}})
