"""Pretended devices: how they are written, what they pretend, how they are steered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hetsched.agent.discovery.host import Host
from hetsched.agent.discovery.inventory import Inventory
from hetsched.agent.discovery.numa import Numa
from hetsched.agent.fake import STEERING_FILE, FakeGroup, FakeProfile, FakeProfileError, FakeVendor, parse_fake

GIB = 1 << 30


def fake(text: str, steering: Path | None = None) -> tuple[FakeVendor, Inventory]:
    vendor = FakeVendor(parse_fake(text), steering)
    inventory = Inventory([vendor])
    inventory.scan()
    return vendor, inventory


def test_the_profile_of_the_contract() -> None:
    assert parse_fake("gpu:A100:8,tpu:v5e:4,cpu:64,memory:256Gi") == FakeProfile(
        (FakeGroup("gpu", "A100", 8), FakeGroup("tpu", "v5e", 4)), cpu_milli=64_000, memory_bytes=256 * GIB
    )


def test_memory_may_follow_the_count() -> None:
    assert parse_fake("gpu:A100:8:40Gi").groups == (FakeGroup("gpu", "A100", 8, 40 * GIB),)


@pytest.mark.parametrize(
    ("text", "part", "rule"),
    [
        ("", "", "must be KIND:MODEL:COUNT"),
        ("gpu:A100:8,", "", "must be KIND:MODEL:COUNT"),
        ("gpu:8", "gpu:8", "must be KIND:MODEL:COUNT"),
        ("cpu:4,gpu:A100:0", "gpu:A100:0", "from 1 to 1024"),
        ("gpu:A100:-1", "gpu:A100:-1", "from 1 to 1024"),
        ("gpu:A100:1e3", "gpu:A100:1e3", "from 1 to 1024"),
        ("gpu:A100:٣", "gpu:A100:٣", "from 1 to 1024"),
        ("gpu:A100:1000,gpu:T4:1000", "gpu:A100:1000,gpu:T4:1000", "more than 1024 devices of kind gpu"),
        ("GPU:A100:8", "GPU:A100:8", "a kind is a lower-case word"),
        ("gpu:A 100:8", "gpu:A 100:8", "a model is a word"),
        ("gpu:A100:8:lots", "gpu:A100:8:lots", "memory: "),
        ("cpu:many", "cpu:many", ""),
        ("cpu:0", "cpu:0", "above 0"),
        ("cpu:1:2", "cpu:1:2", "must be cpu:AMOUNT"),
        ("memory:-1", "memory:-1", ""),
        ("cpu:1,cpu:2", "cpu:2", "given twice"),
    ],
)
def test_errors_name_the_part_and_the_rule(text: str, part: str, rule: str) -> None:
    with pytest.raises(FakeProfileError) as raised:
        parse_fake(text)
    assert raised.value.part == part
    assert rule in raised.value.rule and raised.value.rule


def test_devices_are_numbered_by_kind_and_have_the_usual_memory() -> None:
    _, inventory = fake("gpu:A100:1,tpu:v5e:2,gpu:Nova:1,gpu:T4:1:3Gi")
    assert [(d.id, d.found.model, d.found.memory_bytes, d.found.mask) for d in inventory.devices] == [
        ("gpu-0", "A100", 40 * GIB, "0"),
        ("gpu-1", "Nova", None, "1"),
        ("gpu-2", "T4", 3 * GIB, "2"),
        ("tpu-0", "v5e", 16 * GIB, "0"),
        ("tpu-1", "v5e", 16 * GIB, "1"),
    ]


def test_the_machine_is_as_pretended_and_otherwise_the_real_one() -> None:
    real = Host(cpu_milli=2000, cpus=frozenset({0, 1}), memory_bytes=GIB, numa=Numa(()), boot_id="b")
    assert (parse_fake("cpu:64").host(real).cpu_milli, parse_fake("cpu:64").host(real).memory_bytes) == (64_000, GIB)
    assert parse_fake("gpu:T4:1").host(real) == real


def test_without_a_steering_file_all_is_well(tmp_path: Path) -> None:
    vendor, inventory = fake("gpu:T4:2", tmp_path / STEERING_FILE)
    assert [(r.health, r.utilization_percent, r.memory_total_bytes) for r in vendor.read(inventory.devices)] == [
        ("healthy", 0.0, 16 * GIB),
        ("healthy", 0.0, 16 * GIB),
    ]


def test_the_steering_file_is_followed_and_its_end_too(tmp_path: Path) -> None:
    file = tmp_path / STEERING_FILE
    vendor, inventory = fake("gpu:T4:3", file)
    steered = {
        "gpu-0": {"utilization_percent": 95},
        "gpu-1": {"health": "failed", "reason": "pulled"},
        "gpu-2": {"health": "vanished"},
    }
    file.write_text(json.dumps(steered))
    assert [(r.device, r.health, r.reason, r.utilization_percent) for r in vendor.read(inventory.devices)] == [
        ("gpu-0", "healthy", "", 95.0),
        ("gpu-1", "failed", "pulled", 0.0),
    ]
    file.unlink()
    assert {r.health for r in vendor.read(inventory.devices)} == {"healthy"}


def test_a_steered_xid_is_judged_like_a_real_one(tmp_path: Path) -> None:
    file = tmp_path / STEERING_FILE
    file.write_text('{"gpu-0": {"xids": [79]}}')
    vendor, inventory = fake("gpu:T4:1", file)
    (reading,) = vendor.read(inventory.devices)
    assert (reading.health, reading.xids) == ("failed", (79,))


@pytest.mark.parametrize("bad", ["{", '{"gpu-0": {"healthy": true}}', '{"gpu-0": {"health": "ill"}}', "[]", "\xff"])
def test_a_file_that_is_not_understood_leaves_things_as_they_were(tmp_path: Path, bad: str) -> None:
    file = tmp_path / STEERING_FILE
    file.write_text('{"gpu-0": {"health": "suspect"}}')
    vendor, inventory = fake("gpu:T4:1", file)
    assert [r.health for r in vendor.read(inventory.devices)] == ["suspect"]
    file.write_bytes(bad.encode("latin-1") + b"  ")
    assert [r.health for r in vendor.read(inventory.devices)] == ["suspect"]
