"""Ids of devices: in order, the same again after a restart, and what the daemon is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.agent.discovery.host import Host
from hetsched.agent.discovery.inventory import Inventory, describe_node
from hetsched.agent.discovery.numa import Numa, NumaNode
from hetsched.agent.discovery.registry import open_vendors
from hetsched.agent.discovery.vendor import Device, FoundDevice, VendorError
from hetsched.agent.fake import parse_fake
from hetsched.model import Taint
from hetsched.wire import DeviceReading
from tests.agent.trees import pci, tree

GIB = 1 << 30


def card(name: str, slot: int, kind: str = "gpu", memory: int | None = 80 * GIB, **more: object) -> FoundDevice:
    return FoundDevice(
        key=name, kind=kind, model="H100", mask=name, uuid=name, pci=f"0000:0{slot}:00.0", memory_bytes=memory, **more
    )  # type: ignore[arg-type]


class Maker:
    """A vendor whose devices the test puts in and takes out."""

    period_s = 1.0
    masks: tuple[str, ...] = ("MAKER_VISIBLE",)

    def __init__(self, *present: FoundDevice, name: str = "maker") -> None:
        self.name = name
        self.present = list(present)
        self.error: VendorError | None = None
        self.closed = 0

    def discover(self) -> list[FoundDevice]:
        if self.error:
            raise self.error
        return list(self.present)

    def read(self, devices: Sequence[Device]) -> list[DeviceReading]:
        return [DeviceReading(device.id, "healthy") for device in devices if device.found in self.present]

    def close(self) -> None:
        self.closed += 1


def ids(inventory: Inventory) -> dict[str, str]:
    return {device.id: device.found.key for device in inventory.devices}


def test_devices_are_numbered_by_kind_through_all_vendors() -> None:
    inventory = Inventory([Maker(card("a", 1), card("b", 2)), Maker(card("c", 3), card("t", 4, "tpu"), name="other")])
    assert inventory.scan()
    assert ids(inventory) == {"gpu-0": "a", "gpu-1": "b", "gpu-2": "c", "tpu-0": "t"}
    assert inventory.visible()["gpu-2"] == (("MAKER_VISIBLE",), "c")
    assert not inventory.scan(), "nothing new"


def test_a_vanished_device_keeps_its_id_and_its_neighbours_theirs() -> None:
    maker = Maker(card("a", 1), card("b", 2), card("c", 3))
    inventory = Inventory([maker])
    inventory.scan()
    del maker.present[1]
    assert not inventory.scan()
    assert ids(inventory) == {"gpu-0": "a", "gpu-1": "b", "gpu-2": "c"}


def test_ids_outlive_the_agent_but_not_the_boot(tmp_path: Path) -> None:
    file = tmp_path / "agent/devices.json"
    Inventory([Maker(card("a", 1), card("b", 2))], "boot-1", file).scan()
    again = Inventory([Maker(card("b", 2), card("c", 3))], "boot-1", file)
    again.scan()
    assert ids(again) == {"gpu-0": "a", "gpu-1": "b", "gpu-2": "c"}
    rebooted = Inventory([Maker(card("b", 2), card("c", 3))], "boot-2", file)
    rebooted.scan()
    assert ids(rebooted) == {"gpu-0": "b", "gpu-1": "c"}


def test_a_spoilt_memory_is_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    file.write_text('{"boot_id": "boot-1", "devices": [1]}')
    inventory = Inventory([Maker(card("b", 2))], "boot-1", file)
    assert inventory.scan()
    assert ids(inventory) == {"gpu-0": "b"}


def test_a_slot_with_something_else_in_it_was_changed_on_purpose() -> None:
    maker = Maker(card("a", 1), card("b", 2))
    inventory = Inventory([maker])
    inventory.scan()
    maker.present = [card("MIG-a1", 1), card("MIG-a2", 1), card("b", 2)]
    assert inventory.scan()
    assert ids(inventory) == {"gpu-0": "MIG-a1", "gpu-1": "b", "gpu-2": "MIG-a2"}


def test_a_vendor_that_cannot_be_asked_keeps_its_devices_and_says_why() -> None:
    maker = Maker(card("a", 1))
    inventory = Inventory([maker])
    inventory.scan()
    maker.error = VendorError("driver not loaded")
    assert not inventory.scan()
    assert (ids(inventory), inventory.problems) == ({"gpu-0": "a"}, {"maker": "driver not loaded"})
    maker.error = None
    inventory.scan()
    assert inventory.problems == {}


def test_a_driver_loaded_late_brings_its_devices() -> None:
    maker = Maker(card("a", 1))
    maker.error = VendorError("driver not loaded")
    inventory = Inventory([maker])
    assert not inventory.scan()
    maker.error = None
    assert inventory.scan()
    assert ids(inventory) == {"gpu-0": "a"}


def test_a_device_found_in_a_bad_moment_is_still_what_it_was() -> None:
    maker = Maker(card("a", 1))
    inventory = Inventory([maker])
    inventory.scan()
    maker.present = [card("a", 1, memory=None)]
    assert not inventory.scan()
    assert inventory.devices[0].found.memory_bytes == 80 * GIB


def test_a_degree_more_or_less_is_no_other_device() -> None:
    maker = Maker(card("a", 1, hot_celsius=88.0))
    inventory = Inventory([maker])
    inventory.scan()
    maker.present = [card("a", 1, hot_celsius=89.0)]
    assert not inventory.scan()
    assert inventory.devices[0].found.hot_celsius == 89.0


def test_the_node_as_the_daemon_hears_of_it() -> None:
    numa = Numa((NumaNode(0, frozenset({0, 1}), GIB), NumaNode(1, frozenset({2, 3}), GIB)))
    host = Host(cpu_milli=4000, cpus=frozenset(range(4)), memory_bytes=2 * GIB, numa=numa, boot_id="boot-1")
    inventory = Inventory(
        [Maker(card("a", 1, numa=1, nvlink="nvlink-0", pcie="0000:01:00.0", path="/dev/x"), card("b", 2, numa=7))]
    )
    inventory.scan()
    node = describe_node(
        "n1",
        inventory.devices,
        host,
        labels={"rack": "r1"},
        taints=(Taint(key="k", value="v"),),
        volumes=("imagenet",),
        reserve_cpu_milli=500,
        reserve_memory_bytes=GIB,
    )
    assert (node.name, node.cpu_milli, node.memory_bytes, node.boot_id) == ("n1", 3500, GIB, "boot-1")
    assert (node.labels, node.taints, node.volumes) == ({"rack": "r1"}, (Taint(key="k", value="v"),), ("imagenet",))
    first, second = node.devices
    assert (first.id, first.kind, first.model, first.memory_bytes, first.numa, first.nvlink, first.pcie) == (
        "gpu-0",
        "gpu",
        "H100",
        80 * GIB,
        1,
        "nvlink-0",
        "0000:01:00.0",
    )
    assert (first.uuid, first.pci, first.paths, first.vendor) == ("a", "0000:01:00.0", ("/dev/x",), "maker")
    assert second.numa is None, "there is no node 7 here"


def test_the_registry_opens_the_vendors_that_are_here(tmp_path: Path) -> None:
    nothing = tree(tmp_path / "nothing", {})
    both = tree(
        tmp_path / "both",
        {**pci("0000:01:00.0", "0x10de", "0x2330"), **pci("0000:02:00.0", "0x1ae0", "0x0063", **{"class": "0x120000"})},
    )
    assert open_vendors(root=nothing) == []
    assert [vendor.name for vendor in open_vendors(root=both)] == ["nvidia", "tpu"]
    assert [vendor.name for vendor in open_vendors(parse_fake("gpu:T4:1"), tmp_path, both)] == ["fake"]


def test_pretended_devices_do_not_outlive_their_profile(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    for profile, expected in (("gpu:A100:3", 3), ("gpu:H100:1", 1)):
        inventory = Inventory(open_vendors(parse_fake(profile), tmp_path), "boot-1", file)
        inventory.scan()
        assert len(inventory.devices) == expected
