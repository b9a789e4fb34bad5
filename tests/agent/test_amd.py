"""AMD GPUs from sysfs, and the recorded topologies of two machines."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from hetsched.agent.discovery.amd import Amd, amd_present, kfd_nodes
from hetsched.agent.discovery.vendor import Device
from hetsched.wire import DeviceReading
from tests.agent.trees import pci, tree

GIB = 1 << 30


def gpu(node: int, bus: int, unique: int, hive: int = 0, **more: str | bytes) -> dict[str, str | bytes]:
    """One MI210 as node `node` of the topology, at 0000:BUS:00.0."""
    properties = f"simd_count 416\nvendor_id 4098\ndevice_id 29711\nlocation_id {bus << 8}\ndomain 0\nunique_id {unique}\nhive_id {hive}\n"
    return {
        f"sys/class/kfd/kfd/topology/nodes/{node}/properties": properties,
        f"sys/class/kfd/kfd/topology/nodes/{node}/mem_banks/0/properties": f"heap_type 1\nsize_in_bytes {64 * GIB}\n",
        **pci(f"0000:{bus:02x}:00.0", "0x1002", "0x740f", **more),
    }


CPU_NODE = {"sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 64\nsimd_count 0\nvendor_id 0\n"}


def devices(amd: Amd) -> list[Device]:
    return [Device(f"gpu-{n}", "amd", found) for n, found in enumerate(amd.discover())]


def test_what_the_topology_tells(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {**CPU_NODE, **gpu(2, 0x63, 0xABC, hive=5, numa_node="1"), **gpu(1, 0x43, 0xDEF, hive=5), **gpu(3, 0x83, 1)},
    )
    found = Amd(root).discover()
    assert [(f.pci, f.uuid, f.mask, f.model, f.memory_bytes, f.numa, f.nvlink) for f in found] == [
        ("0000:43:00.0", "GPU-0000000000000def", "GPU-0000000000000def", "MI210", 64 * GIB, None, "xgmi-5"),
        ("0000:63:00.0", "GPU-0000000000000abc", "GPU-0000000000000abc", "MI210", 64 * GIB, 1, "xgmi-5"),
        ("0000:83:00.0", "GPU-0000000000000001", "GPU-0000000000000001", "MI210", 64 * GIB, None, None),
    ]
    assert amd_present(root)


def test_partitions_that_share_an_id_are_named_by_number(tmp_path: Path) -> None:
    root = tree(tmp_path, {**gpu(1, 0x43, 7), **gpu(2, 0x43, 7), **gpu(3, 0x44, 0)})
    assert [(f.uuid, f.mask, f.key) for f in Amd(root).discover()] == [
        (None, "0", "0000:43:00.0#0"),
        (None, "1", "0000:43:00.0#1"),
        (None, "2", "0000:44:00.0#2"),
    ]


def test_a_reading_with_everything(tmp_path: Path) -> None:
    told = {
        "product_name": "AMD Instinct MI300X OAM\n",
        "gpu_busy_percent": "93\n",
        "mem_info_vram_total": f"{192 * GIB}\n",
        "mem_info_vram_used": f"{GIB}\n",
        "hwmon__hwmon3__temp1_input": "40000",
        "hwmon__hwmon3__temp2_input": "61500",
        "hwmon__hwmon3__temp2_label": "junction\n",
        "hwmon__hwmon3__temp2_crit": "100000",
        "hwmon__hwmon3__power1_average": "412000000",
        "ras__umc_err_count": "ue: 1\nce: 20\n",
        "ras__gfx_err_count": "ue: 2\nce: 0\n",
    }
    amd = Amd(tree(tmp_path, gpu(1, 0x43, 7, **told)))
    (device,) = devices(amd)
    assert (device.found.model, device.found.memory_bytes, device.found.critical_celsius) == (
        "MI300X",
        192 * GIB,
        100.0,
    )
    assert amd.read([device]) == [DeviceReading("gpu-0", "healthy", "", 93.0, GIB, 192 * GIB, 61.5, 412.0, 3, ())]


def test_a_reading_with_nothing(tmp_path: Path) -> None:
    amd = Amd(tree(tmp_path, gpu(1, 0x43, 7)))
    assert amd.read(devices(amd)) == [DeviceReading("gpu-0", "healthy")]


def test_dead_links_fail_and_missing_cards_vanish(tmp_path: Path) -> None:
    root = tree(tmp_path, {**gpu(1, 0x43, 7), **gpu(2, 0x44, 8)})
    amd = Amd(root)
    found = devices(amd)
    (root / "sys/bus/pci/devices/0000:43:00.0/config").write_bytes(b"\xff" * 64)
    (root / "sys/bus/pci/devices/0000:44:00.0").rename(root / "gone")
    assert [(r.device, r.health) for r in amd.read(found)] == [("gpu-0", "failed")]


def test_a_machine_without_any(tmp_path: Path) -> None:
    assert not amd_present(tree(tmp_path, CPU_NODE))
    assert Amd(tmp_path).discover() == []


@pytest.mark.parametrize(
    ("name", "inside", "gpus", "islands"),
    [("topo-mi210-xgmi-pcie", "nodes", 8, 2), ("topology-parsing", "topology/nodes", 2, 0)],
)
def test_recorded_topologies(shared: Path, tmp_path: Path, name: str, inside: str, gpus: int, islands: int) -> None:
    archive = shared / f"fixtures/amd/kfd-sysfs/{name}.tar.gz"
    if not archive.exists():
        pytest.skip(f"no recording {archive.name}")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    target = tmp_path / "root/sys/class/kfd/kfd/topology"
    target.mkdir(parents=True)
    (tmp_path / "unpacked" / inside).rename(target / "nodes")
    nodes = list(kfd_nodes(tmp_path / "root"))
    found = Amd(tmp_path / "root").discover()
    assert (len(nodes), len({f.key for f in found})) == (gpus, gpus)
    assert len({f.nvlink for f in found} - {None}) == islands
    assert all(f.uuid and f.pci for f in found)
