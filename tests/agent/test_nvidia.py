"""NVIDIA as a vendor: through the library, through the command, and when either breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pynvml
import pytest

from hetsched.agent.discovery.nvidia import Nvidia, SmiSource, Source, nvidia_present, open_nvidia, run_smi
from hetsched.agent.discovery.nvidia_smi import SmiError
from hetsched.agent.discovery.nvml import NvmlSource
from hetsched.agent.discovery.vendor import Device, VendorError
from hetsched.wire import DeviceReading
from tests.agent.fake_nvml import LOST, NOT_SUPPORTED, FakeNvml, Gpu
from tests.agent.smi import UUID, document, gpu, partition
from tests.agent.trees import pci, tree


def vendor(source: Callable[[], Source], root: Path = Path("/nowhere"), **more: str) -> Nvidia:
    return Nvidia(source, root, environment=more)


def devices(nvidia: Nvidia) -> list[Device]:
    return [Device(f"gpu-{n}", "nvidia", found) for n, found in enumerate(nvidia.discover())]


def by_library(nvml: FakeNvml, root: Path = Path("/nowhere")) -> tuple[Nvidia, list[Device]]:
    nvidia = vendor(lambda: NvmlSource(nvml), root)
    return nvidia, devices(nvidia)


def health(readings: Sequence[DeviceReading]) -> dict[str, str]:
    return {reading.device: reading.health for reading in readings}


def test_the_library_tells_all_of_a_gpu(tmp_path: Path) -> None:
    root = tree(tmp_path, pci("0000:01:00.0", "0x10de", "0x2330", numa_node="1"))
    nvidia, (device,) = by_library(FakeNvml(Gpu(0)), root)
    found = device.found
    assert (found.kind, found.model, found.uuid, found.mask, found.numa) == ("gpu", "H100", "GPU-0", "GPU-0", 1)
    assert (found.memory_bytes, found.hot_celsius, found.critical_celsius) == (80 << 30, 88.0, 95.0)
    assert nvidia.read([device]) == [
        DeviceReading("gpu-0", "healthy", "", 42.0, 1 << 30, 80 << 30, 55.0, 350.5, 0, ()),
    ]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilization_percent"),
        ("nvmlDeviceGetTemperature", "temperature_celsius"),
        ("nvmlDeviceGetPowerUsage", "power_watts"),
        ("nvmlDeviceGetTotalEccErrors", "ecc_uncorrected"),
        ("nvmlDeviceGetMemoryInfo", "memory_total_bytes"),
    ],
)
def test_one_field_that_fails_is_none_and_the_rest_stands(call: str, field: str) -> None:
    card = Gpu(0)
    nvidia, found = by_library(FakeNvml(card))
    card.errors[call] = NOT_SUPPORTED
    (reading,) = nvidia.read(found)
    assert getattr(reading, field) is None
    assert (reading.health, sum(getattr(reading, name) is None for name in reading.__struct_fields__)) == (
        "healthy",
        2 if call == "nvmlDeviceGetMemoryInfo" else 1,
    )


def test_a_card_that_knows_next_to_nothing_is_still_a_device() -> None:
    calls = [name for name in dir(FakeNvml) if name.startswith("nvmlDeviceGet")]
    known = {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetCount"}
    nvidia, found = by_library(
        FakeNvml(Gpu(0, name=b"Tesla T4", errors=dict.fromkeys(set(calls) - known, NOT_SUPPORTED)))
    )
    assert [(d.found.model, d.found.memory_bytes) for d in found] == [("T4", None)]
    assert health(nvidia.read(found)) == {"gpu-0": "healthy"}


def test_a_lost_gpu_fails_and_the_others_are_read() -> None:
    cards = [Gpu(0), Gpu(1)]
    nvidia, found = by_library(FakeNvml(*cards))
    cards[1].errors = {"nvmlDeviceGetMemoryInfo": LOST}
    assert health(nvidia.read(found)) == {"gpu-0": "healthy", "gpu-1": "failed"}


def test_a_gpu_that_cannot_even_be_named_has_vanished() -> None:
    cards = [Gpu(0), Gpu(1)]
    nvidia, found = by_library(FakeNvml(*cards))
    cards[0].errors = {"nvmlDeviceGetHandleByIndex": LOST}
    assert health(nvidia.read(found)) == {"gpu-1": "healthy"}


def test_a_lost_gpu_without_its_uuid_is_known_by_its_slot() -> None:
    cards = [Gpu(0), Gpu(1)]
    nvidia, found = by_library(FakeNvml(*cards))
    cards[1].errors = {"nvmlDeviceGetUUID": LOST, "nvmlDeviceGetMemoryInfo": LOST}
    assert health(nvidia.read(found)) == {"gpu-0": "healthy", "gpu-1": "failed"}


def test_a_dead_link_is_believed_over_the_drivers_numbers(tmp_path: Path) -> None:
    root = tree(tmp_path, pci("0000:01:00.0", "0x10de", "0x2330"))
    nvidia, found = by_library(FakeNvml(Gpu(0)), root)
    (root / "sys/bus/pci/devices/0000:01:00.0/config").write_bytes(b"\xff" * 64)
    assert health(nvidia.read(found)) == {"gpu-0": "failed"}


def test_xids_are_told_once_and_judged() -> None:
    cards = [Gpu(0), Gpu(1)]
    nvml = FakeNvml(*cards)
    nvidia, found = by_library(nvml)
    assert nvml.registered == [0, 1]
    nvml.events = [(cards[0], 13, None), (cards[1], 48, None), (cards[1], 63, None)]
    assert [(r.health, r.xids) for r in nvidia.read(found)] == [("healthy", (13,)), ("failed", (48, 63))]
    assert [(r.health, r.xids) for r in nvidia.read(found)] == [("healthy", ()), ("healthy", ())]


def test_a_configured_xid_beats_the_table() -> None:
    card = Gpu(0)
    nvml = FakeNvml(card)
    nvidia = Nvidia(lambda: NvmlSource(nvml), Path("/nowhere"), {48: "healthy", 13: "suspect"}, environment={})
    found = devices(nvidia)
    nvml.events = [(card, 48, None)]
    assert health(nvidia.read(found)) == {"gpu-0": "healthy"}
    nvml.events = [(card, 13, None)]
    assert health(nvidia.read(found)) == {"gpu-0": "suspect"}


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({"remapped": (0, 1, 1, 0)}, "suspect"),
        ({"remapped": (0, 9, 0, 1)}, "failed"),
        ({"recovery": 1}, "failed"),
        ({"recovery": 4}, "suspect"),
        ({"cluster": b"0123456789abcdef", "health_mask": 1 << 4}, "suspect"),
        ({"cluster": b"0123456789abcdef", "health_mask": 2 << 4}, "healthy"),
    ],
)
def test_what_the_library_thinks_of_it(broken: dict[str, object], expected: str) -> None:
    nvidia, found = by_library(FakeNvml(Gpu(0, **broken)))  # type: ignore[arg-type]
    assert health(nvidia.read(found)) == {"gpu-0": expected}


def test_links_to_each_other_and_to_a_switch_make_groups() -> None:
    switch = "00000000:C0:00.0"
    cards = [
        Gpu(0, links={0: switch}),
        Gpu(1, links={2: switch}),
        Gpu(2),
        Gpu(3, links={0: "00000000:05:00.0"}),
        Gpu(4),
    ]
    cards[4].links = {0: "00000000:04:00.0"}
    _, found = by_library(FakeNvml(*cards))
    assert [d.found.nvlink for d in found] == ["nvlink-0", "nvlink-0", None, "nvlink-1", "nvlink-1"]


def test_a_fabric_over_several_nodes_names_the_group() -> None:
    _, found = by_library(FakeNvml(Gpu(0, name="NVIDIA GB200", cluster=bytes(range(16)))))
    assert found[0].found.nvlink == "00010203-0405-0607-0809-0a0b0c0d0e0f/7"


def test_partitions_are_devices_and_an_xid_hits_only_its_own() -> None:
    parts = [Gpu(0, name="NVIDIA A100-SXM4-80GB MIG 1g.10gb", memory=(10 << 30, 0), instance=n) for n in (3, 5)]
    card = Gpu(0, name="NVIDIA A100-SXM4-80GB", mig=True, partitions=parts)
    nvml = FakeNvml(card)
    nvidia, found = by_library(nvml)
    assert [(d.found.model, d.found.uuid, d.found.memory_bytes) for d in found] == [
        ("A100-MIG-1g.10gb", "MIG-0-3", 10 << 30),
        ("A100-MIG-1g.10gb", "MIG-0-5", 10 << 30),
    ]
    nvml.events = [(card, 94, 5)]
    readings = nvidia.read(found)
    assert [(r.health, r.utilization_percent, r.memory_total_bytes) for r in readings] == [
        ("healthy", None, 10 << 30),
        ("suspect", None, 10 << 30),
    ]


@pytest.mark.parametrize(
    ("mask", "seen"),
    [
        ("2,0", ["GPU-2", "GPU-0"]),
        ("GPU-1", ["GPU-1"]),
        ("0,9,1", ["GPU-0"]),
        ("", []),
        ("-1", []),
    ],
)
def test_an_agent_that_is_masked_itself_offers_only_what_it_was_given(mask: str, seen: list[str]) -> None:
    nvidia = vendor(lambda: NvmlSource(FakeNvml(Gpu(0), Gpu(1), Gpu(2))), CUDA_VISIBLE_DEVICES=mask)
    assert [found.uuid for found in nvidia.discover()] == seen


def test_a_driver_that_went_away_is_looked_for_again() -> None:
    nvml = FakeNvml(Gpu(0))
    nvidia, found = by_library(nvml)
    nvml.broken = True
    for _ in range(2):
        with pytest.raises(VendorError, match="nvml"):
            nvidia.read(found)
    nvml.broken = False
    assert health(nvidia.read(found)) == {"gpu-0": "healthy"}
    nvidia.close()
    nvidia.close()
    assert nvml.open == 0, "every opening was closed"


class Command:
    """nvidia-smi: answers by its arguments; a text that is no document makes it fail."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.calls: list[str] = []

    def __call__(self, arguments: Sequence[str]) -> str:
        self.calls.append(" ".join(arguments))
        return self.answers.get(arguments[-1].lstrip("-"), self.answers.get(arguments[0].lstrip("-"), ""))


def test_the_command_serves_as_well() -> None:
    matrix = "GPU0\t X \tNV4\nGPU1\tNV4\t X \n"
    nvidia = vendor(lambda: SmiSource(Command(q=document(gpu(0), gpu(1, gpu_util="N/A")), topo=matrix)))
    found = devices(nvidia)
    assert [(d.found.model, d.found.nvlink) for d in found] == [("A100", "nvlink-0"), ("A100", "nvlink-0")]
    assert [(r.utilization_percent, r.health) for r in nvidia.read(found)] == [(37.0, "healthy"), (None, "healthy")]
    assert nvidia.period_s == 10.0


def test_when_one_lost_gpu_breaks_the_command_the_others_are_asked_one_by_one() -> None:
    command = Command(q=document(gpu(0), gpu(1), gpu(2)))
    nvidia = vendor(lambda: SmiSource(command))
    found = devices(nvidia)
    command.answers = {
        UUID.format(2): "Failed to initialize NVML: Unknown Error",
        "x": "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.",
        UUID.format(0): document(gpu(0)),
    }
    readings = nvidia.read(found)
    assert health(readings) == {"gpu-0": "healthy", "gpu-1": "failed", "gpu-2": "suspect"}
    assert (readings[0].utilization_percent, readings[2].reason.partition(":")[0]) == (37.0, "unreadable")


def test_the_command_names_partitions_once() -> None:
    mig = f"<mig_devices>{partition(0, 3)}</mig_devices>"
    listing = f"GPU 0: A (UUID: {UUID.format(0)})\n  MIG 1g.10gb  Device  0: (UUID: MIG-abc)\n"
    command = Command(q=document(gpu(0, mig="Enabled", extra=mig)), L=listing)
    nvidia = vendor(lambda: SmiSource(command))
    found = devices(nvidia)
    assert [(d.found.model, d.found.mask) for d in found] == [("A100-MIG-1g.10gb", "MIG-abc")]
    nvidia.read(found)
    assert health(nvidia.read(found)) == {"gpu-0": "healthy"}
    assert command.calls.count("-L") == 1
    command.answers["q"] = document(gpu(0, mig="Enabled", extra=f"<mig_devices>{partition(0, 9)}</mig_devices>"))
    command.answers["L"] = listing.replace("MIG-abc", "MIG-xyz")
    assert nvidia.read(found) == [], "the old partition is gone"
    assert [f.mask for f in nvidia.discover()] == ["MIG-xyz"]


def test_a_command_that_fails_hangs_or_is_absent_is_an_error_of_the_vendor(tmp_path: Path) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Unknown Error'; exit 255\n")
    script.chmod(0o755)
    with pytest.raises(SmiError, match="Failed to initialize NVML"):
        run_smi([str(script)])
    with pytest.raises(SmiError, match="absent"):
        run_smi([str(tmp_path / "absent")])
    script.write_text(f"#!/bin/sh\necho '{document(gpu())}'; exit 14\n")
    assert "<gpu" in run_smi([str(script)]), "a warning's exit code with a whole document"


def test_the_real_library_has_every_name_that_is_used(root: Path) -> None:
    text = (root / "hetsched/agent/discovery/nvml.py").read_text()
    names = set(re.findall(r"\bnvml\.((?:nvml|NVML|c_nvml)\w+)", text))
    assert len(names) > 25
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []


def test_without_a_driver_the_vendor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        NvmlSource(pynvml).close()
    except VendorError as error:
        assert "nvmlInit" in str(error)
    else:
        pytest.skip("this machine has an NVIDIA driver")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(VendorError, match="no nvidia-smi on PATH"):
        Nvidia(open_nvidia, environment={}).discover()


def test_presence_is_seen_on_the_bus_or_by_the_drivers_file(tmp_path: Path) -> None:
    assert not nvidia_present(tree(tmp_path / "none", pci("0000:01:00.0", "0x10de", "0x10f8", **{"class": "0x040300"})))
    assert nvidia_present(tree(tmp_path / "card", pci("0000:01:00.0", "0x10de", "0x20b2")))
    assert nvidia_present(tree(tmp_path / "container", {"dev/nvidiactl": ""}))
