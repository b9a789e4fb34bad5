"""A driver's library in memory: an object with the functions of nvidia-ml-py that the agent calls, and GPUs that can be broken."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


NOT_SUPPORTED, NOT_FOUND, TIMEOUT, LOST, UNKNOWN = 3, 6, 10, 15, 999


class FabricInfo(ctypes.Structure):
    _fields_ = [
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("healthMask", ctypes.c_uint32),
    ]


@dataclass
class Gpu:
    """One GPU. `errors`: function name → NVML error that it raises ("*" = every one)."""

    number: int
    name: str | bytes = "NVIDIA H100 80GB HBM3"
    memory: tuple[int, int] = (80 << 30, 1 << 30)
    utilization: int = 42
    temperature: int = 55
    power_milliwatts: int = 350_500
    ecc: int = 0
    remapped: tuple[int, int, int, int] = (0, 0, 0, 0)
    recovery: int = 0
    links: dict[int, str] = field(default_factory=dict)
    partitions: list[Gpu] = field(default_factory=list)
    mig: bool = False
    instance: int = 0
    cluster: bytes = bytes(16)
    health_mask: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        return f"GPU-{self.number}" if not self.instance else f"MIG-{self.number}-{self.instance}"

    @property
    def pci(self) -> str:
        return f"00000000:{self.number + 1:02X}:00.0"


class FakeNvml:
    """`events`: Xids waiting, as (GPU, number, GPU instance or None)."""

    NVMLError = NVMLError
    NVML_ERROR_GPU_IS_LOST = LOST
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 0, 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_NVLINK_MAX_LINKS, NVML_FEATURE_ENABLED = 4, 1
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    nvmlEventTypeXidCriticalError = 8
    c_nvmlGpuFabricInfoV_t = FabricInfo

    def __init__(self, *gpus: Gpu, broken: bool = False) -> None:
        self.gpus = list(gpus)
        self.broken = broken
        self.events: list[tuple[Gpu, int, int | None]] = []
        self.registered: list[int] = []
        self.open = 0

    def nvmlInit(self) -> None:
        if self.broken:
            raise NVMLError(UNKNOWN)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        if self.broken:
            raise NVMLError(UNKNOWN)
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self._of(self.gpus[index], "nvmlDeviceGetHandleByIndex", lambda gpu: gpu)

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetUUID", lambda gpu: gpu.uuid)

    def nvmlDeviceGetName(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetName", lambda gpu: gpu.name)

    def nvmlDeviceGetPciInfo(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetPciInfo", lambda gpu: SimpleNamespace(busId=gpu.pci.encode()))

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu) -> Any:
        return self._of(
            gpu, "nvmlDeviceGetMemoryInfo", lambda gpu: SimpleNamespace(total=gpu.memory[0], used=gpu.memory[1])
        )

    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetUtilizationRates", lambda gpu: SimpleNamespace(gpu=gpu.utilization))

    def nvmlDeviceGetTemperature(self, gpu: Gpu, sensor: int) -> Any:
        return self._of(gpu, "nvmlDeviceGetTemperature", lambda gpu: gpu.temperature)

    def nvmlDeviceGetTemperatureThreshold(self, gpu: Gpu, which: int) -> Any:
        return self._of(gpu, "nvmlDeviceGetTemperatureThreshold", lambda gpu: (95, 88)[which])

    def nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetPowerUsage", lambda gpu: gpu.power_milliwatts)

    def nvmlDeviceGetTotalEccErrors(self, gpu: Gpu, kind: int, counter: int) -> Any:
        assert (kind, counter) == (1, 0)
        return self._of(gpu, "nvmlDeviceGetTotalEccErrors", lambda gpu: gpu.ecc)

    def nvmlDeviceGetRemappedRows(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetRemappedRows", lambda gpu: gpu.remapped)

    def nvmlDeviceGetRetiredPagesPendingStatus(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetRetiredPagesPendingStatus", lambda gpu: 0)

    def nvmlDeviceGetFieldValues(self, gpu: Gpu, fields: list[int]) -> Any:
        value = SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=gpu.recovery))
        return self._of(gpu, "nvmlDeviceGetFieldValues", lambda gpu: [value for _ in fields])

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: Gpu, reference: Any) -> Any:
        info = reference._obj
        info.clusterUuid[:] = gpu.cluster
        info.cliqueId, info.state, info.healthMask = 7, 3, gpu.health_mask
        return self._of(gpu, "nvmlDeviceGetGpuFabricInfoV", lambda gpu: 0)

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetMigMode", lambda gpu: [int(gpu.mig), int(gpu.mig)])

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Gpu:
        if index >= len(gpu.partitions):
            raise NVMLError(NOT_FOUND)
        return gpu.partitions[index]

    def nvmlDeviceGetGpuInstanceId(self, part: Gpu) -> int:
        return part.instance

    def nvmlDeviceGetNvLinkState(self, gpu: Gpu, link: int) -> int:
        return self._of(gpu, "nvmlDeviceGetNvLinkState", lambda gpu: int(link in gpu.links))

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: Gpu, link: int) -> Any:
        return SimpleNamespace(busId=gpu.links[link])

    def nvmlDeviceGetSupportedEventTypes(self, gpu: Gpu) -> Any:
        return self._of(gpu, "nvmlDeviceGetSupportedEventTypes", lambda gpu: 0xFF)

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlEventSetFree(self, events: object) -> None:
        self.registered.clear()

    def nvmlDeviceRegisterEvents(self, gpu: Gpu, kinds: int, events: object) -> None:
        self.registered.append(gpu.number)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:
        assert timeout_ms == 0, "a reading never waits"
        if not self.events:
            raise NVMLError(TIMEOUT)
        gpu, code, instance = self.events.pop(0)
        told = 0xFFFFFFFF if instance is None else instance
        return SimpleNamespace(device=gpu, eventType=8, eventData=code, gpuInstanceId=told)

    def _of(self, gpu: Gpu, call: str, answer: Callable[[Gpu], Any]) -> Any:
        error = gpu.errors.get(call, gpu.errors.get("*"))
        if error is not None:
            raise NVMLError(error)
        return answer(gpu)
