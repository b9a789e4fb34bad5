"""TPUs: chips on the bus, their device files, and the tool that tells how busy they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.agent.discovery.tpu import Tpu, tpu_present
from hetsched.agent.discovery.tpu_info import TpuUsage, open_tpu_info, parse_tpu_info
from hetsched.agent.discovery.vendor import Device
from tests.agent.trees import pci, tree

GIB = 1 << 30
TABLE = """
TPU Runtime Utilization

| Chip   | HBM Usage (GiB)          | Duty cycle |
|--------|--------------------------|------------|
| 8      | 16.00 GiB / 31.25 GiB    |     95.50% |
| 13     |  4.00 GiB / 31.25 GiB    |      0.00% |

TensorCore Utilization

| Core ID | TensorCore Utilization |
|---------|------------------------|
| 0       | 15.17%                 |
"""


def chip(
    slot: int, group: int | None = None, accel: int | None = None, device: str = "0x006f", **more: str
) -> dict[str, str | bytes]:
    """A chip at 0000:00:0SLOT.0 with its device file, if any."""
    address = f"0000:00:0{slot}.0"
    files = pci(address, "0x1ae0", device, **{"class": "0x120000\n", **more})
    if group is not None:
        files[f"sys/bus/pci/devices/{address}/iommu_group -> ../../../kernel/iommu_groups/{group}"] = ""
        files[f"dev/vfio/{group}"] = ""
    if accel is not None:
        files[f"sys/bus/pci/devices/{address}/accel/accel{accel}/dev"] = "1:2"
        files[f"dev/accel{accel}"] = ""
    return files


def machine(root: Path, *chips: dict[str, str | bytes]) -> Path:
    for files in chips:
        tree(root, files)
    return root


def devices(tpu: Tpu) -> list[Device]:
    return [Device(f"tpu-{n}", "tpu", found) for n, found in enumerate(tpu.discover())]


def test_vfio_groups_name_the_files_and_their_order_the_chips(tmp_path: Path) -> None:
    root = machine(tmp_path, chip(4, group=12, numa_node="1"), chip(5, group=3, numa_node="0"))
    found = Tpu(root, environment={}).discover()
    assert [(f.key, f.path, f.mask, f.model, f.memory_bytes, f.numa) for f in found] == [
        ("0000:00:05.0", "/dev/vfio/3", "0", "v6e", 32 * GIB, 0),
        ("0000:00:04.0", "/dev/vfio/12", "1", "v6e", 32 * GIB, 1),
    ]
    assert tpu_present(root)


def test_older_chips_are_accel_files(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        chip(4, accel=1, device="0x005e"),
        chip(5, accel=0, device="0x005e"),
        chip(6, accel=10, device="0x005e"),
    )
    assert [(f.path, f.model) for f in Tpu(root, environment={}).discover()] == [
        ("/dev/accel0", "v4"),
        ("/dev/accel1", "v4"),
        ("/dev/accel10", "v4"),
    ]


@pytest.mark.parametrize(
    ("device", "more", "model"),
    [
        ("0x0027", {"subsystem_device": "0x004e"}, "v2"),
        ("0x0027", {"subsystem_device": "0x004f"}, "v3"),
        ("0x0027", {}, "unknown"),
        ("0x0063", {}, "v5e"),
        ("0x0062", {"class": "0xff0000"}, "v5p"),
        ("0x0076", {}, "7x"),
        ("0x9999", {}, "unknown"),
    ],
)
def test_models_by_pci_id(tmp_path: Path, device: str, more: dict[str, str], model: str) -> None:
    assert [f.model for f in Tpu(machine(tmp_path, chip(4, group=0, device=device, **more))).discover()] == [model]


def test_googles_network_and_disks_are_no_tpus(tmp_path: Path) -> None:
    root = machine(tmp_path, pci("0000:00:03.0", "0x1ae0", "0x0042", **{"class": "0x020000"}))
    assert Tpu(root, environment={}).discover() == []
    assert not tpu_present(root)


def test_a_container_without_the_bus_tells_by_its_accel_files(tmp_path: Path) -> None:
    root = tree(tmp_path, {"dev/accel0": "", "dev/accel1": "", "dev/accel/accel0": "", "dev/vfio/7": ""})
    found = Tpu(root, environment={"TPU_ACCELERATOR_TYPE": "v5litepod-8"}).discover()
    assert [(f.key, f.model, f.memory_bytes) for f in found] == [
        ("/dev/accel0", "v5e", 16 * GIB),
        ("/dev/accel1", "v5e", 16 * GIB),
    ]
    assert [f.model for f in Tpu(root, environment={}).discover()] == ["unknown", "unknown"]


def test_another_makers_accelerator_is_not_taken_for_a_tpu(tmp_path: Path) -> None:
    root = tree(tmp_path, {"dev/accel0": "", "sys/class/accel/accel0/device/vendor": "0x1da3"})
    assert not tpu_present(root)


def test_a_reading_without_the_tool_knows_health_and_size(tmp_path: Path) -> None:
    tpu = Tpu(machine(tmp_path, chip(4, group=0)), environment={})
    (reading,) = tpu.read(devices(tpu))
    assert (reading.health, reading.utilization_percent, reading.memory_total_bytes) == ("healthy", None, 32 * GIB)


def test_the_tools_numbers_are_matched_by_order_not_by_name(tmp_path: Path) -> None:
    tpu = Tpu(machine(tmp_path, chip(4, group=12), chip(5, group=3)), lambda: TABLE, environment={})
    readings = tpu.read(devices(tpu))
    assert [(r.device, r.utilization_percent, r.memory_used_bytes) for r in readings] == [
        ("tpu-0", 95.5, 16 * GIB),
        ("tpu-1", 0.0, 4 * GIB),
    ]


def test_a_table_that_fits_no_chip_is_not_used(tmp_path: Path) -> None:
    tpu = Tpu(machine(tmp_path, *(chip(n, group=n) for n in (4, 5, 6))), lambda: TABLE, environment={})
    assert {r.utilization_percent for r in tpu.read(devices(tpu))} == {None}


def test_cores_counted_one_by_one_make_one_chip(tmp_path: Path) -> None:
    tpu = Tpu(machine(tmp_path, chip(4, accel=0, device="0x0027")), lambda: TABLE, environment={})
    (reading,) = tpu.read(devices(tpu))
    assert (reading.utilization_percent, reading.memory_used_bytes) == (95.5, 20 * GIB)


def test_dead_links_lost_files_and_vanished_chips(tmp_path: Path) -> None:
    root = machine(tmp_path, chip(4, group=0), chip(5, group=1), chip(6, group=2), chip(7))
    tpu = Tpu(root, environment={})
    found = devices(tpu)
    (root / "sys/bus/pci/devices/0000:00:04.0/config").write_bytes(b"\xff" * 64)
    (root / "dev/vfio/1").unlink()
    folder = root / "sys/bus/pci/devices/0000:00:06.0"
    folder.rename(root / "gone")
    assert [(r.device, r.health, r.reason.partition(":")[0]) for r in tpu.read(found)] == [
        ("tpu-0", "failed", "lost"),
        ("tpu-1", "failed", "device_file_gone"),
        ("tpu-3", "suspect", "no_device_file"),
    ]


def test_box_drawing_and_silence() -> None:
    drawn = "┃ Chip ┃ HBM Usage (GiB) ┃ Duty cycle ┃\n┡━━━╇━━━╇━━━┩\n│ 0 │ 1.00 GiB / 2.00 GiB │ N/A │\n└───┴───┴───┘\n"
    assert parse_tpu_info(drawn) == [TpuUsage("0", GIB, 2 * GIB, None)]
    assert parse_tpu_info("") == []
    assert parse_tpu_info("Libtpu metrics unavailable\n| Chip | N/A |\n") == []


def test_the_tool_is_not_called_more_often_than_useful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "tpu-info"
    script.write_text('#!/bin/sh\necho x >> "$0.calls"; echo table\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    clock = iter((0.0, 1.0, 4.9, 5.0, 6.0))
    tool = open_tpu_info(lambda: next(clock))
    assert tool is not None
    assert [tool() for _ in range(5)] == ["table\n"] * 5
    assert (tmp_path / "tpu-info.calls").read_text().count("x") == 2


def test_without_the_tool_there_is_nothing_to_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert open_tpu_info() is None


@pytest.mark.parametrize(
    ("name", "chips"),
    [("tpu-info-v6e.txt", ["0", "1", "2", "3"]), ("tpu-info-streaming-v6e.txt", ["8", "9", "12", "13"])],
)
def test_recorded_tables(shared: Path, name: str, chips: list[str]) -> None:
    file = shared / "fixtures/tpu" / name
    if not file.exists():
        pytest.skip(f"no recording {name}")
    rows = parse_tpu_info(file.read_text())
    assert [row.chip for row in rows] == chips
    assert all(row.duty_percent == 100.0 and row.memory_total_bytes == int(31.25 * GIB) for row in rows)
