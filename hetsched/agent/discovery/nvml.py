"""NVIDIA's management library, asked field by field: what one GPU does not tell is None, and only a lost GPU is a lost GPU.

`nvml` is the module `pynvml` of nvidia-ml-py, or in tests an object with the same functions. Drivers and cards differ in which calls
they know, so every call goes through `_ask`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from hetsched.agent.discovery.nvidia_state import LOST, GpuState, Partition, judge_recovery, judge_rows
from hetsched.agent.discovery.sysfs import normal_pci
from hetsched.agent.discovery.vendor import SUSPECT, VendorError, Verdict, worst
from hetsched.agent.discovery.xid import XidEvent

_MOST_EVENTS = 1000  # in one reading; a GPU that reports more is in trouble enough, and a reading must end
_NO_INSTANCE = 0xFFFFFFFF
_ROUTE_UNHEALTHY_SHIFT, _ROUTE_UNHEALTHY_TRUE = 4, 1
_FABRIC_COMPLETED = 3
# NVML_GPU_RECOVERY_ACTION_*, in nvidia-smi's words.
_RECOVERY = {1: "gpu reset", 2: "node reboot", 3: "drain p2p", 4: "drain and reset", 6: "bus reset", 7: "system reboot"}


class _LostError(Exception):
    """The driver says that this GPU is gone."""


class NvmlSource:
    """The library, opened. Raises VendorError when there is no driver or it does not answer."""

    period_s = 1.0  # a few milliseconds for eight GPUs

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._events: Any = None
        self._watched: set[str] = set()
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise VendorError(f"nvmlInit: {error}") from error

    def states(self) -> list[GpuState]:
        """Every GPU that the driver lists, lost ones included as far as they can still be named."""
        states = []
        for index, handle in self._handles():
            state = self._state(index, handle)
            self._watch(handle, state.uuid)
            states.append(state)
        return states

    def links(self) -> list[tuple[str, str]]:
        """Pairs of UUIDs (and PCI addresses of switches) that active NVLinks join."""
        nvml = self._nvml
        addresses = {}
        for _, handle in self._handles():
            if uuid := self._text(nvml.nvmlDeviceGetUUID, handle):
                addresses[self._pci(handle) or uuid] = (uuid, handle)
        pairs = []
        for uuid, handle in addresses.values():
            for link in range(nvml.NVML_NVLINK_MAX_LINKS):
                if self._ask(nvml.nvmlDeviceGetNvLinkState, handle, link) == nvml.NVML_FEATURE_ENABLED:
                    remote = self._ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
                    address = normal_pci(_decoded(remote.busId)) if remote is not None else None
                    if address:
                        pairs.append((uuid, addresses[address][0] if address in addresses else address))
        return pairs

    def xids(self) -> list[XidEvent]:
        """Xids since the last call, of every GPU seen by `states`. The library gives numbers, not texts."""
        nvml = self._nvml
        events: list[XidEvent] = []
        while self._events is not None and len(events) < _MOST_EVENTS:
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError:  # timeout = no more; anything else will show in the readings
                break
            pci = self._pci(event.device)
            if pci and event.eventType == nvml.nvmlEventTypeXidCriticalError:
                instance = None if event.gpuInstanceId == _NO_INSTANCE else int(event.gpuInstanceId)
                events.append(XidEvent(pci, int(event.eventData), instance=instance))
        return events

    def close(self) -> None:
        """Frees the event set and the library."""
        if self._events is not None:
            self._ask(self._nvml.nvmlEventSetFree, self._events)
            self._events = None
        self._ask(self._nvml.nvmlShutdown)

    def _handles(self) -> list[tuple[int, Any]]:
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise VendorError(f"nvmlDeviceGetCount: {error}") from error
        handles = []
        for index in range(count):
            try:
                handles.append((index, nvml.nvmlDeviceGetHandleByIndex(index)))
            except nvml.NVMLError:  # lost, or not ours to see: left out, so that the device counts as vanished
                continue
        return handles

    def _watch(self, handle: Any, uuid: str | None) -> None:
        """Registers for the GPU's Xids, once; one that has none to give is read without."""
        nvml = self._nvml
        if uuid is None or uuid in self._watched:
            return
        self._watched.add(uuid)
        if self._events is None:
            self._events = self._ask(nvml.nvmlEventSetCreate)
        supported = self._ask(nvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
        if self._events is not None and supported & nvml.nvmlEventTypeXidCriticalError:
            self._ask(nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _state(self, index: int, handle: Any) -> GpuState:
        uuid, pci = self._text(self._nvml.nvmlDeviceGetUUID, handle), self._pci(handle)
        try:
            return self._living(index, handle, uuid, pci)
        except _LostError:
            return GpuState(uuid=uuid, pci=pci, index=index, verdict=LOST)

    def _living(self, index: int, handle: Any, uuid: str | None, pci: str | None) -> GpuState:
        nvml, ask = self._nvml, self._strict
        memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        use = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        milliwatts = ask(nvml.nvmlDeviceGetPowerUsage, handle)
        mig = (ask(nvml.nvmlDeviceGetMigMode, handle) or (0, 0))[0] == 1
        fabric, fabric_verdict = self._fabric(handle)
        return GpuState(
            uuid=uuid,
            pci=pci,
            name=self._text(nvml.nvmlDeviceGetName, handle) or "",
            index=index,
            memory_total_bytes=None if memory is None else int(memory.total),
            memory_used_bytes=None if memory is None else int(memory.used),
            utilization_percent=None if use is None else float(use.gpu),
            temperature_celsius=_float(ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            ecc_uncorrected=ask(
                nvml.nvmlDeviceGetTotalEccErrors,
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            hot_celsius=self._threshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            critical_celsius=self._threshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
            fabric=fabric,
            verdict=worst([self._rows(handle), self._recovery(handle), fabric_verdict]),
            mig=mig,
            partitions=self._partitions(handle) if mig else (),
        )

    def _partitions(self, handle: Any) -> tuple[Partition, ...]:
        nvml, parts = self._nvml, []
        for index in range(self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            part = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            uuid = None if part is None else self._text(nvml.nvmlDeviceGetUUID, part)
            if uuid is None:  # the index is free
                continue
            memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, part)
            parts.append(
                Partition(
                    uuid=uuid,
                    index=index,
                    instance=self._ask(nvml.nvmlDeviceGetGpuInstanceId, part),
                    profile=(self._text(nvml.nvmlDeviceGetName, part) or "").rpartition("MIG ")[2],
                    memory_total_bytes=None if memory is None else int(memory.total),
                    memory_used_bytes=None if memory is None else int(memory.used),
                )
            )
        return tuple(parts)

    def _threshold(self, handle: Any, which: int) -> float | None:
        limit = self._ask(self._nvml.nvmlDeviceGetTemperatureThreshold, handle, which)
        return float(limit) if limit else None

    def _rows(self, handle: Any) -> Verdict:
        rows = self._ask(self._nvml.nvmlDeviceGetRemappedRows, handle)
        if rows is not None:
            return judge_rows(pending=bool(rows[2]), failed=bool(rows[3]))
        return judge_rows(
            pending=self._ask(self._nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle) == 1, failed=False
        )

    def _recovery(self, handle: Any) -> Verdict:
        field = getattr(self._nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        values = self._ask(self._nvml.nvmlDeviceGetFieldValues, handle, [field]) if field is not None else None
        if not values or values[0].nvmlReturn != 0:
            return Verdict()
        return judge_recovery(_RECOVERY.get(int(values[0].value.uiVal), ""))

    def _fabric(self, handle: Any) -> tuple[str | None, Verdict]:
        nvml = self._nvml
        if not hasattr(nvml, "c_nvmlGpuFabricInfoV_t"):
            return None, Verdict()
        info = nvml.c_nvmlGpuFabricInfoV_t()
        if self._ask(nvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
            return None, Verdict()
        cluster = bytes(info.clusterUuid)
        if info.state != _FABRIC_COMPLETED or not any(cluster):
            return None, Verdict()
        unhealthy = info.healthMask >> _ROUTE_UNHEALTHY_SHIFT & 3 == _ROUTE_UNHEALTHY_TRUE
        text = cluster.hex()
        name = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}/{info.cliqueId}"
        return name, Verdict(SUSPECT, "fabric_unhealthy: route_unhealthy") if unhealthy else Verdict()

    def _pci(self, handle: Any) -> str | None:
        info = self._ask(self._nvml.nvmlDeviceGetPciInfo, handle)
        return None if info is None else normal_pci(_decoded(info.busId))

    def _text(self, call: Any, handle: Any) -> str | None:
        value = self._ask(call, handle)
        return None if value is None else _decoded(value)

    def _ask(self, call: Any, *arguments: Any) -> Any:
        """The answer, or None when this driver or card has none."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None

    def _strict(self, call: Any, *arguments: Any) -> Any:
        """As `_ask`, but a lost GPU is said so."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == self._nvml.NVML_ERROR_GPU_IS_LOST:
                raise _LostError from error
            return None


def _decoded(value: bytes | str) -> str:
    """Old nvidia-ml-py gives bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
