"""The output of `nvidia-smi -q -x`, in all the shapes it takes: driver 418 to 610, N/A and worse in any field, lost GPUs, MIG.

Pure functions from text. A field that cannot be read is None; only a document that cannot be read raises.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import msgspec

from hetsched.agent.discovery.nvidia_state import LOST, GpuState, Partition, judge_recovery, judge_rows
from hetsched.agent.discovery.sysfs import normal_pci
from hetsched.agent.discovery.vendor import SUSPECT, VendorError, Verdict, worst

_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z%]*)")
_UNIT_BYTES = {
    "": 1,
    "B": 1,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "KB": 1 << 10,
    "MB": 1 << 20,
    "GB": 1 << 30,
}
_NO_CLUSTER = {"", "N/A", "00000000-0000-0000-0000-000000000000"}


class SmiError(VendorError):
    """No document came. `lost`: the GPU it broke on, where the message names one; the others may be well: ask for them one by one."""

    def __init__(self, message: str, lost: str | None = None) -> None:
        super().__init__(message)
        self.lost = lost


def parse_smi(text: str) -> list[GpuState]:
    """Every GPU in the document, in its order. Raises SmiError when it is no document."""
    try:
        # A DOCTYPE names a DTD file that is not read; entities do not occur.
        document = ElementTree.fromstring(text.strip())
    except ElementTree.ParseError as error:
        raise smi_error(text) from error
    return [_gpu(gpu, index) for index, gpu in enumerate(document.iter("gpu"))]


def smi_error(text: str) -> SmiError:
    """What nvidia-smi said instead of a document, in one line, with the lost GPU if it names one."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no output")
    found = re.search(r"for GPU ?\d*:? ?([0-9A-Fa-f:.]+): (?:GPU is lost|Unknown Error)", text)
    return SmiError(f"nvidia-smi: {line[:200]}", normal_pci(found[1]) if found else None)


def parse_list(text: str) -> dict[tuple[str, int], tuple[str, str]]:
    """`nvidia-smi -L` → (UUID of the GPU, index of the MIG device on it) → (profile, UUID of the MIG device)."""
    found: dict[tuple[str, int], tuple[str, str]] = {}
    gpu = ""
    for line in text.splitlines():
        if whole := re.search(r"^GPU \d+: .*\(UUID: (GPU-[^)]+)\)", line):
            gpu = whole[1]
        elif part := re.search(r"^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)", line):
            found[gpu, int(part[2])] = (part[1], part[3])
    return found


def parse_topology(text: str) -> list[tuple[int, int]]:
    """`nvidia-smi topo -m` → pairs of GPU indices that NVLink joins (cells "NV4"); [] when there is no such table."""
    pairs = []
    for line in text.splitlines():
        cells = re.sub(r"\x1b\[[0-9;]*m", "", line).split("\t")
        row = re.fullmatch(r"GPU(\d+)", cells[0].strip())
        if row:
            pairs += [
                (int(row[1]), column) for column, cell in enumerate(cells[1:]) if re.fullmatch(r"NV\d+", cell.strip())
            ]
    return pairs


def name_partitions(states: list[GpuState], listing: dict[tuple[str, int], tuple[str, str]]) -> list[GpuState]:
    """The same states, their partitions under the names that `parse_list` found (those it does not know keep theirs)."""
    named = []
    for state in states:
        parts = []
        for part in state.partitions:
            profile, uuid = listing.get((state.uuid or "", part.index), (part.profile, part.uuid))
            parts.append(msgspec.structs.replace(part, profile=profile, uuid=uuid))
        named.append(msgspec.structs.replace(state, partitions=tuple(parts)))
    return named


def _gpu(gpu: ElementTree.Element, index: int) -> GpuState:
    temperature = _number(gpu, "temperature/gpu_temp")
    uuid = _text(gpu, "uuid")
    mig = _text(gpu, "mig_mode/current_mig") == "Enabled"
    lost = any("gpu is lost" in (element.text or "").lower() for element in gpu.iter())
    return GpuState(
        uuid=uuid if uuid.startswith("GPU-") else None,
        pci=normal_pci(_text(gpu, "pci/pci_bus_id") or gpu.get("id", "")),
        name=_text(gpu, "product_name"),
        index=index,
        memory_total_bytes=_bytes(gpu, "fb_memory_usage/total"),
        memory_used_bytes=_bytes(gpu, "fb_memory_usage/used"),
        utilization_percent=_number(gpu, "utilization/gpu_util"),
        temperature_celsius=temperature,
        power_watts=_power(gpu),
        ecc_uncorrected=_ecc(gpu),
        hot_celsius=_limit(gpu, temperature, "slow"),
        critical_celsius=_limit(gpu, temperature, "max"),
        fabric=_fabric(gpu),
        verdict=LOST if lost else _verdict(gpu),
        mig=mig,
        partitions=tuple(_partition(part, uuid) for part in gpu.iterfind("mig_devices/mig_device")) if mig else (),
    )


def _partition(part: ElementTree.Element, gpu_uuid: str) -> Partition:
    """The document has no UUIDs of partitions; CUDA also takes MIG-<GPU>/<GPU instance>/<compute instance>. `-L` gives the better name."""
    instance, compute = _text(part, "gpu_instance_id"), _text(part, "compute_instance_id")
    return Partition(
        uuid=f"MIG-{gpu_uuid}/{instance}/{compute}",
        index=int(_number(part, "index") or 0),
        instance=int(instance) if instance.isdigit() else None,
        memory_total_bytes=_bytes(part, "fb_memory_usage/total"),
        memory_used_bytes=_bytes(part, "fb_memory_usage/used"),
    )


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _number(element: ElementTree.Element, path: str) -> float | None:
    """ "50 %" → 50.0; N/A, [Unknown Error], ERR!, GPU is lost, missing → None."""
    found = _NUMBER.fullmatch(_text(element, path))
    return float(found[1]) if found else None


def _bytes(element: ElementTree.Element, path: str) -> int | None:
    found = _NUMBER.fullmatch(_text(element, path))
    unit = _UNIT_BYTES.get(found[2].upper()) if found else None
    return None if found is None or unit is None else int(float(found[1]) * unit)


def _power(gpu: ElementTree.Element) -> float | None:
    """The average where the driver has one (what NVML gives), else the moment's; three generations of names."""
    for group in ("gpu_power_readings", "power_readings"):
        for field in ("average_power_draw", "power_draw", "instant_power_draw"):
            if (watts := _number(gpu, f"{group}/{field}")) is not None:
                return watts
    return None


def _ecc(gpu: ElementTree.Element) -> int | None:
    """Uncorrected errors since the driver was loaded, of all memories; None when ECC is off or not told."""
    volatile = gpu.find("ecc_errors/volatile")
    if volatile is None:
        return None
    total = _number(volatile, "double_bit/total")
    if total is not None:
        return int(total)
    counts = [_number(volatile, field.tag) for field in volatile if "uncorrectable" in field.tag]
    told = [int(count) for count in counts if count is not None]
    return sum(told) if told else None


def _limit(gpu: ElementTree.Element, temperature: float | None, which: str) -> float | None:
    """Where it slows down ("slow") or shuts down ("max"): given outright, or since Hopper as a margin below the present temperature."""
    if (outright := _number(gpu, f"temperature/gpu_temp_{which}_threshold")) is not None:
        return outright
    margin = _number(gpu, "temperature/gpu_temp_tlimit")
    threshold = _number(gpu, f"temperature/gpu_temp_{which}_tlimit_threshold")
    if temperature is None or margin is None or threshold is None:
        return None
    return temperature + margin - threshold


def _fabric(gpu: ElementTree.Element) -> str | None:
    cluster, clique = _text(gpu, "fabric/clusterUuid"), _text(gpu, "fabric/cliqueId")
    if _text(gpu, "fabric/state") != "Completed" or cluster in _NO_CLUSTER:
        return None
    return f"{cluster}/{clique}"


def _verdict(gpu: ElementTree.Element) -> Verdict:
    return worst(
        [
            judge_rows(
                pending="Yes"
                in (_text(gpu, "remapped_rows/remapped_row_pending"), _text(gpu, "retired_pages/pending_retirement")),
                failed=_text(gpu, "remapped_rows/remapped_row_failure") == "Yes",
            ),
            judge_recovery(_text(gpu, "gpu_recovery_action").lower()),
            _fabric_verdict(gpu),
            _unreadable(gpu),
        ]
    )


def _fabric_verdict(gpu: ElementTree.Element) -> Verdict:
    if _text(gpu, "fabric/health/summary") != "Unhealthy":
        return Verdict()
    bad = [field.tag for field in gpu.iterfind("fabric/health/*") if (field.text or "").strip() == "True"]
    return Verdict(SUSPECT, f"fabric_unhealthy: {', '.join(bad)}" if bad else "fabric_unhealthy")


def _unreadable(gpu: ElementTree.Element) -> Verdict:
    """One [Unknown Error] is a sensor's; in memory, utilisation and temperature at once it is the device's."""
    telling = [_text(gpu, path) for path in ("fb_memory_usage/used", "utilization/gpu_util", "temperature/gpu_temp")]
    broken = all("unknown error" in text.lower() or text == "ERR!" for text in telling)
    return Verdict(SUSPECT, "unreadable: nvidia-smi gives errors for it") if broken else Verdict()
