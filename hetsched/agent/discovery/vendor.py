"""The seam between an agent and the makers of devices: what a vendor has to answer, and in which words.

A vendor finds its devices once (`discover`) and is then asked again and again how they are (`read`). It reports what it sees at
this moment and nothing else: remembering, thresholds and hysteresis are `hetsched.agent.health`'s, the same for every vendor.

Adding a vendor (Intel, Huawei, Tenstorrent …):
 1. a module here with a class that has the members of `Vendor`; take paths and command runners as constructor arguments, so that
    tests can drive it with a recording; never raise for one field that a device does not tell: that field is None;
 2. one line in `registry.py`, which decides whether the vendor is present on this machine;
 3. its models in `catalogue.py`, if the hardware does not tell its own memory;
 4. its own classes of trouble as `Verdict`s in `read` (lost = failed, needs a reset = failed, degraded = suspect);
 5. a story in `tests/agent/` for: healthy, one field missing, one device lost, tool or driver absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from hetsched.wire import DeviceReading

HEALTHY = "healthy"
SUSPECT = "suspect"
FAILED = "failed"


class FoundDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device as its vendor found it, before it has an id.

    `key` names the same silicon for as long as the machine is up (UUID, else PCI address). `mask` is what a task's environment calls
    it by (an entry of the vendor's `masks` variables). The two temperatures are the device's own limits, None = use the configured.
    """

    key: str
    kind: str
    model: str
    mask: str
    memory_bytes: int | None = None
    numa: int | None = None
    nvlink: str | None = None
    pcie: str | None = None
    uuid: str | None = None
    pci: str | None = None
    path: str | None = None
    hot_celsius: float | None = None
    critical_celsius: float | None = None


class Device(msgspec.Struct, frozen=True):
    """A found device with its id on this node (`kind-N`) and the name of the vendor that answers for it."""

    id: str
    vendor: str
    found: FoundDevice


class Verdict(msgspec.Struct, frozen=True):
    """What a vendor thinks of one device now; `reason` starts with a coded word ("lost", "row_remap_failed")."""

    health: str = HEALTHY
    reason: str = ""


class Vendor(Protocol):
    """One maker's devices on this machine. Calls may block (the driver hangs): `watch.py` gives each vendor its own thread.

    `masks`: environment variables that restrict a task to some of the devices; () = by the device's kind alone.
    """

    name: str
    masks: tuple[str, ...]

    @property
    def period_s(self) -> float:
        """How long at least between two readings: cheap ones find trouble sooner."""

    def discover(self) -> list[FoundDevice]:
        """All devices present now, in a stable order. [] when there are none; raises VendorError when it cannot tell."""

    def read(self, devices: Sequence[Device]) -> list[DeviceReading]:
        """One reading for each device that is still there; a device left out has vanished. Raises VendorError if none can be read."""

    def close(self) -> None:
        """Lets go of the driver. Idempotent."""


class VendorError(Exception):
    """The driver or tool of one vendor did not answer; says which call and what it said. Not about a single device."""


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The gravest of several verdicts; the first of equals, so callers list them by how telling they are."""
    rank = {HEALTHY: 0, SUSPECT: 1, FAILED: 2}
    return max(verdicts, key=lambda verdict: rank[verdict.health], default=Verdict())
