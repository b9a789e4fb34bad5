"""NVIDIA GPUs as a vendor: the library first, the command `nvidia-smi` where the library cannot be had.

A source that stops answering is dropped and looked for anew at the next call: a driver update or a module reload heals by itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from hetsched.agent.discovery.kernel_messages import KernelMessages
from hetsched.agent.discovery.nvidia_smi import (
    SmiError,
    name_partitions,
    parse_list,
    parse_smi,
    parse_topology,
    smi_error,
)
from hetsched.agent.discovery.nvidia_state import LOST, GpuState, found_devices, link_groups, readings
from hetsched.agent.discovery.nvml import NvmlSource
from hetsched.agent.discovery.sysfs import pci_answers, pci_functions, pci_numa, pci_switch
from hetsched.agent.discovery.vendor import SUSPECT, Device, FoundDevice, VendorError, Verdict
from hetsched.agent.discovery.xid import XidEvent
from hetsched.wire import DeviceReading

PCI_VENDOR = "0x10de"
_COMMAND_TIMEOUT_S = 15.0  # a healthy nvidia-smi takes 1 to 3 s without persistence mode

Command = Callable[[Sequence[str]], str]


class Source(Protocol):
    """One way of asking the driver; `period_s` apart."""

    period_s: float

    def states(self) -> list[GpuState]: ...

    def links(self) -> list[tuple[str, str]]: ...

    def xids(self) -> list[XidEvent]: ...

    def close(self) -> None: ...


class SmiSource:
    """The command `nvidia-smi`; Xids come from the kernel's log, where that may be read."""

    period_s = 10.0  # it takes seconds and a process

    def __init__(self, run: Command, messages: KernelMessages | None = None) -> None:
        self._run = run
        self._messages = messages
        self._known: list[GpuState] = []
        self._listing: dict[tuple[str, int], tuple[str, str]] = {}
        self._listed: list[str] = []

    def states(self) -> list[GpuState]:
        """Every GPU. Where one lost GPU makes the command fail as a whole, the others are asked one by one."""
        try:
            states = parse_smi(self._run(["-q", "-x"]))
        except SmiError as error:
            if error.lost is None or not self._known:
                raise
            return [self._alone(known, error.lost) for known in self._known]
        parts = [part.uuid for state in states for part in state.partitions]
        if parts != self._listed:  # names are asked for only when there are other partitions than last time
            self._listing = parse_list(self._run(["-L"])) if parts else {}
            self._listed = parts
        self._known = name_partitions(states, self._listing)
        return self._known

    def links(self) -> list[tuple[str, str]]:
        uuids = {state.index: state.uuid for state in self._known if state.uuid}
        pairs = parse_topology(self._run(["topo", "-m"]))
        return [(uuids[left], uuids[right]) for left, right in pairs if left in uuids and right in uuids]

    def xids(self) -> list[XidEvent]:
        return [] if self._messages is None else self._messages.new_xids()

    def close(self) -> None:
        if self._messages is not None:
            self._messages.close()

    def _alone(self, known: GpuState, lost: str) -> GpuState:
        gone = GpuState(uuid=known.uuid, pci=known.pci, name=known.name, index=known.index, verdict=LOST)
        if known.pci == lost or known.uuid is None:
            return gone
        try:
            states = parse_smi(self._run(["-q", "-x", "-i", known.uuid]))
        except SmiError as error:
            unreadable = Verdict(SUSPECT, f"unreadable: {error}")
            return gone if error.lost == known.pci else msgspec.structs.replace(gone, verdict=unreadable)
        return msgspec.structs.replace(states[0], index=known.index) if states else gone


class Nvidia:
    """The vendor. `open_source` finds a way to the driver or raises VendorError; `xid_overrides`: Xid → healthy | suspect | failed.

    `environment`: an agent that is itself masked (CUDA_VISIBLE_DEVICES) offers only what it was given, although the driver shows it all.
    """

    name = "nvidia"
    masks: tuple[str, ...] = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")

    def __init__(
        self,
        open_source: Callable[[], Source],
        root: Path = Path("/"),
        xid_overrides: Mapping[int, str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._open = open_source
        self._root = root
        self._overrides = dict(xid_overrides or {})
        self._own_mask = environment.get("CUDA_VISIBLE_DEVICES")
        self._source: Source | None = None

    @property
    def period_s(self) -> float:
        """The library answers in milliseconds, the command does not."""
        return 1.0 if self._source is None else self._source.period_s

    def discover(self) -> list[FoundDevice]:
        """The GPUs, or the partitions of those in MIG mode, in the driver's order."""
        source = self._opened()
        states = self._states()
        try:
            links = link_groups(source.links())
        except VendorError:
            links = {}  # nice to know; no reason to have no GPUs
        numa = {state.pci: pci_numa(self._root, state.pci) for state in states if state.pci}
        switches = {state.pci: pci_switch(self._root, state.pci) for state in states if state.pci}
        return found_devices(within_mask(states, self._own_mask), numa, links, switches)

    def read(self, devices: Sequence[Device]) -> list[DeviceReading]:
        """A GPU whose link is dead reads as lost even while the driver still makes up numbers for it."""
        states = [self._checked(state) for state in self._states()]
        return readings(devices, states, self._opened().xids(), self._overrides)

    def close(self) -> None:
        """Lets go of the driver; a later call would open it again."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _opened(self) -> Source:
        if self._source is None:
            self._source = self._open()
        return self._source

    def _states(self) -> list[GpuState]:
        try:
            return self._opened().states()
        except VendorError:
            self.close()
            raise

    def _checked(self, state: GpuState) -> GpuState:
        if pci_answers(self._root, state.pci) is False:
            return GpuState(
                uuid=state.uuid, pci=state.pci, index=state.index, verdict=LOST, partitions=state.partitions
            )
        return state


def within_mask(states: list[GpuState], mask: str | None) -> list[GpuState]:
    """The GPUs that a mask of indices and UUIDs (or their beginnings) names, as CUDA reads it: the first that names nothing ends it.
    Indices are taken in the order of the bus. None = no mask: all. A partition named alone brings no other of its GPU."""
    if mask is None:
        return states
    chosen: list[GpuState] = []
    for word in (word.strip() for word in mask.split(",")):
        named = [part for state in states if (part := _named(state, word)) is not None]
        if not named:
            break
        chosen += [state for state in named if state not in chosen]
    return chosen


def _named(state: GpuState, word: str) -> GpuState | None:
    if word.isdigit():
        return state if state.index == int(word) else None
    if word.startswith("GPU-"):
        return state if (state.uuid or "").startswith(word) else None
    parts = tuple(part for part in state.partitions if word.startswith("MIG-") and part.uuid.startswith(word))
    return msgspec.structs.replace(state, partitions=parts) if parts else None


def open_nvidia() -> Source:
    """The library, else the command. Raises VendorError saying why neither works."""
    import pynvml

    try:
        return NvmlSource(pynvml)
    except VendorError as error:
        path = shutil.which("nvidia-smi")
        if path is None:
            raise VendorError(f"{error}; no nvidia-smi on PATH either") from error
    return SmiSource(lambda arguments: run_smi([path, *arguments]), KernelMessages.open())


def nvidia_present(root: Path = Path("/")) -> bool:
    """An NVIDIA display or compute function on the bus, or the driver's device (in a container that hides the bus)."""
    if (root / "dev/nvidiactl").exists() or (root / "dev/dxg").exists():
        return True
    return any(f.vendor == PCI_VENDOR and f.pci_class.startswith("0x03") for f in pci_functions(root))


def run_smi(argv: Sequence[str]) -> str:
    """The command's output, also when it exits with an error but wrote a document. Raises SmiError."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SmiError(f"nvidia-smi: {error}") from error
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0 and "<gpu" not in text:
        raise smi_error(text + done.stderr.decode(errors="replace"))
    return text
