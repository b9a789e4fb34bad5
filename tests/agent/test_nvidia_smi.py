"""`nvidia-smi -q -x` in the shapes that it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.agent.discovery.catalogue import default_memory_bytes, model_of_name
from hetsched.agent.discovery.nvidia_smi import SmiError, name_partitions, parse_list, parse_smi, parse_topology
from hetsched.agent.discovery.nvidia_state import GpuState, found_devices, link_groups
from tests.agent.smi import UUID, document, gpu, partition

MIB = 1 << 20


def one(text: str) -> GpuState:
    (state,) = parse_smi(document(text))
    return state


def test_a_healthy_gpu_tells_everything() -> None:
    state = one(gpu())
    assert (state.uuid, state.pci, state.name) == (UUID.format(0), "0000:01:00.0", "NVIDIA A100-SXM4-40GB")
    assert (state.memory_total_bytes, state.memory_used_bytes) == (40960 * MIB, 1024 * MIB)
    assert (state.utilization_percent, state.temperature_celsius, state.power_watts) == (37.0, 51.0, 201.5)
    assert (state.ecc_uncorrected, state.verdict.health) == (0, "healthy")


@pytest.mark.parametrize(
    "text", ["N/A", "[N/A]", "[Unknown Error]", "Unknown Error", "ERR!", "", "Insufficient Permissions"]
)
def test_a_field_that_is_not_told_is_none_and_the_rest_is_read(text: str) -> None:
    state = one(gpu(gpu_util=text, total=text))
    assert (state.utilization_percent, state.memory_total_bytes) == (None, None)
    assert (state.temperature_celsius, state.verdict.health) == (51.0, "healthy")


def test_missing_elements_are_not_told() -> None:
    state = one("<gpu id='00000000:41:00.0'><product_name>Tesla T4</product_name><uuid>GPU-1</uuid></gpu>")
    assert (state.pci, state.memory_total_bytes, state.ecc_uncorrected, state.power_watts) == (
        "0000:41:00.0",
        None,
        None,
        None,
    )
    assert state.verdict.health == "healthy"


def test_a_lost_gpu_is_failed_and_its_neighbour_is_not() -> None:
    well, lost = parse_smi(document(gpu(0), gpu(1, total="GPU is lost", used="GPU is lost", gpu_util="GPU is lost")))
    assert (well.verdict.health, lost.verdict.health) == ("healthy", "failed")
    assert lost.uuid == UUID.format(1) and lost.verdict.reason.startswith("lost")


def test_errors_in_every_telling_field_make_it_unreadable() -> None:
    state = one(gpu(used="[Unknown Error]", gpu_util="[Unknown Error]", gpu_temp="ERR!"))
    assert state.verdict.health == "suspect" and state.verdict.reason.startswith("unreadable")


def test_uncorrected_errors_of_all_memories_add_up() -> None:
    assert one(gpu(dram_uncorrectable="5", sram_uncorrectable="2")).ecc_uncorrected == 7
    assert one(gpu(dram_uncorrectable="N/A")).ecc_uncorrected is None
    old = "<ecc_errors><volatile><double_bit><total>3</total></double_bit></volatile></ecc_errors>"
    assert one(f"<gpu id='0:01:00.0'><uuid>GPU-1</uuid>{old}</gpu>").ecc_uncorrected == 3


@pytest.mark.parametrize(
    ("extra", "health"),
    [
        ("<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>", "suspect"),
        ("<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>", "failed"),
        ("<retired_pages><pending_retirement>Yes</pending_retirement></retired_pages>", "suspect"),
        ("<gpu_recovery_action>None</gpu_recovery_action>", "healthy"),
        ("<gpu_recovery_action>Reset</gpu_recovery_action>", "failed"),
        ("<gpu_recovery_action>Drain P2P</gpu_recovery_action>", "suspect"),
        (
            "<fabric><health><summary>Unhealthy</summary><route_unhealthy>True</route_unhealthy></health></fabric>",
            "suspect",
        ),
        (
            "<fabric><health><summary>Healthy</summary><route_unhealthy>False</route_unhealthy></health></fabric>",
            "healthy",
        ),
    ],
)
def test_what_the_driver_thinks_of_it(extra: str, health: str) -> None:
    assert one(gpu(extra=extra)).verdict.health == health


def test_the_limits_of_heat_are_given_outright_or_as_a_margin() -> None:
    outright = (
        "<gpu_temp_max_threshold>92 C</gpu_temp_max_threshold><gpu_temp_slow_threshold>89 C</gpu_temp_slow_threshold>"
    )
    margin = (
        "<gpu_temp_tlimit>30 C</gpu_temp_tlimit><gpu_temp_max_tlimit_threshold>-5 C</gpu_temp_max_tlimit_threshold>"
        "<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold>"
    )
    for told, limits in ((outright, (89.0, 92.0)), (margin, (83.0, 86.0)), ("", (None, None))):
        temperature = f"<temperature><gpu_temp>51 C</gpu_temp>{told}</temperature>"
        state = one(f"<gpu id='0:01:00.0'><uuid>GPU-1</uuid>{temperature}</gpu>")
        assert (state.hot_celsius, state.critical_celsius) == limits


def test_a_gpu_in_mig_mode_is_its_partitions() -> None:
    mig = f"<mig_devices>{partition(0, 3)}{partition(1, 5)}</mig_devices>"
    states = parse_smi(document(gpu(0, mig="Enabled", gpu_util="N/A", extra=mig)))
    parts = found_devices(states, {"0000:01:00.0": 1}, {UUID.format(0): "nvlink-0"})
    assert [(p.model, p.uuid, p.memory_bytes, p.numa, p.nvlink) for p in parts] == [
        ("A100-MIG-10gb", f"MIG-{UUID.format(0)}/3/0", 9728 * MIB, 1, None),
        ("A100-MIG-10gb", f"MIG-{UUID.format(0)}/5/0", 9728 * MIB, 1, None),
    ]
    listing = f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {UUID.format(0)})\n  MIG 1g.10gb     Device  1: (UUID: MIG-abc)\n"
    named = found_devices(name_partitions(states, parse_list(listing)), {}, {})
    assert [(p.model, p.mask) for p in named] == [
        ("A100-MIG-10gb", f"MIG-{UUID.format(0)}/3/0"),
        ("A100-MIG-1g.10gb", "MIG-abc"),
    ]


def test_mig_mode_without_partitions_offers_nothing() -> None:
    assert (
        found_devices(parse_smi(document(gpu(0, mig="Enabled", extra="<mig_devices>None</mig_devices>"))), {}, {}) == []
    )


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system", "0000:02:00.0"),
        ("Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error", "0000:ba:80.0"),
        ("Failed to initialize NVML: Driver/library version mismatch", None),
        ("", None),
        ("<nvidia_smi_log><gpu", None),
    ],
)
def test_no_document_is_an_error_that_quotes_it(said: str, lost: str | None) -> None:
    with pytest.raises(SmiError) as raised:
        parse_smi(said)
    assert raised.value.lost == lost
    assert said[:20] in str(raised.value)


def test_the_matrix_of_links() -> None:
    text = "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\nGPU0\t X \tNV12\tSYS\tPXB\nGPU1\tNV12\t X \tSYS\tPXB\nGPU2\tSYS\tSYS\t X \tPIX\n"
    assert parse_topology(text) == [(0, 1), (1, 0)]
    assert parse_topology("Nvlink queries are not supported") == []


def test_links_over_a_switch_make_one_group_and_loners_are_in_none() -> None:
    assert link_groups([("a", "switch"), ("b", "switch"), ("c", "d"), ("switch", "e")]) == {
        "a": "nvlink-0",
        "switch": "nvlink-0",
        "b": "nvlink-0",
        "c": "nvlink-1",
        "d": "nvlink-1",
        "e": "nvlink-0",
    }
    assert link_groups([]) == {}


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200 NVL", "H200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4080 SUPER", "RTX-4080-SUPER"),
        ("Quadro RTX 6000", "RTX-6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("Graphics Device", "Graphics-Device"),
        ("", "unknown"),
    ],
)
def test_marketing_names_become_the_word_that_tasks_ask_for(name: str, model: str) -> None:
    assert model_of_name(name) == model


def test_known_models_have_their_memory() -> None:
    assert (default_memory_bytes("A100"), default_memory_bytes("v5e")) == (40 << 30, 16 << 30)
    assert default_memory_bytes("no such thing") is None


def test_every_recorded_document_is_read(shared: Path) -> None:
    folder = shared / "fixtures/nvidia/smi-xml"
    files = sorted(folder.glob("*.xml"))
    if not files:
        pytest.skip("no recorded nvidia-smi documents")
    for file in files:
        states = parse_smi(file.read_text())
        assert states, file.name
        for state in states:
            assert state.uuid and state.pci and state.name, file.name
            assert state.memory_total_bytes or "lost" in state.verdict.reason, file.name


RECORDED = {
    # document: (model, devices, verdicts)
    "infra-qx-h100.xml": ("H100", 8, {"healthy"}),
    "infra-qx-a100-healthy.xml": ("A100", 2, {"healthy"}),
    "infra-qx-gb200-lost.xml": ("GB200", 2, {"failed"}),
    "infra-qx-gb200-ecc-injected.xml": ("GB200", 2, {"failed", "healthy"}),
    "infra-qx-gb200-fabric-degraded.xml": ("GB200", 2, {"healthy", "suspect"}),
    "telegraf-a100-sxm4-v12.xml": ("A100-MIG-20gb", 4, {"healthy"}),
    "telegraf-gtx-1070-ti.xml": ("GTX-1070-Ti", 1, {"healthy"}),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_documents(shared: Path, name: str) -> None:
    file = shared / "fixtures/nvidia/smi-xml" / name
    if not file.exists():
        pytest.skip(f"no recording {name}")
    states = parse_smi(file.read_text())
    devices = found_devices(states, {}, {})
    model, count, verdicts = RECORDED[name]
    assert ({device.model for device in devices}, len(devices)) == ({model}, count)
    assert {state.verdict.health for state in states} == verdicts


def test_a_recorded_list_of_partitions(shared: Path) -> None:
    file = shared / "fixtures/nvidia/captures/linux-x86_64__nvidia-h200-mig__590.48.01.txt"
    if not file.exists():
        pytest.skip("no recorded MIG capture")
    assert [profile for profile, _ in parse_list(file.read_text()).values()] == [
        "1c.3g.71gb",
        "2c.3g.71gb",
        "2g.35gb",
        "1g.18gb",
        "1g.18gb",
    ]
