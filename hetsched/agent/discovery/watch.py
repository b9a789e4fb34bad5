"""Keeps an eye on the devices: asks each vendor when it is due, lets the health machine judge, says what has to be pushed.

A driver can hang for ever in a call that nothing interrupts. So every vendor has a thread of its own (a daemon thread, so that not even
the agent's exit waits for it), and one that does not answer in time has unreadable devices; the others are not held up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import msgspec

from hetsched.agent.discovery.inventory import Inventory
from hetsched.agent.discovery.vendor import SUSPECT, Device, FoundDevice, Vendor, VendorError
from hetsched.agent.health import Change, HealthTracker, PushRule
from hetsched.agent.symptoms import Limits, Thresholds
from hetsched.wire import DeviceReading

ANSWER_WITHIN_S = 5.0  # a reading; a vendor that is read less often than that may take its whole period
DISCOVER_WITHIN_S = 30.0  # of one vendor; three calls of nvidia-smi on a bad day


class Observation(msgspec.Struct, frozen=True):
    """One look. `readings`: every device, for the answer to a Pull. `push`: those to send at once ((): none)."""

    readings: tuple[DeviceReading, ...]
    push: tuple[DeviceReading, ...]
    changes: tuple[Change, ...]


class DeviceWatch:
    """Call it from one worker thread: `observe` may block for `answer_within_s`, `rescan` for `discover_within_s` a vendor.

    A vendor that was late once is not waited for again until it has answered.
    """

    def __init__(
        self,
        inventory: Inventory,
        thresholds: Thresholds | None = None,
        answer_within_s: float = ANSWER_WITHIN_S,
        discover_within_s: float = DISCOVER_WITHIN_S,
    ) -> None:
        self._inventory = inventory
        self._thresholds = thresholds or Thresholds()
        self._answer_within_s = answer_within_s
        self._discover_within_s = discover_within_s
        self._tracker = HealthTracker({}, self._thresholds)
        self._push = PushRule(self._thresholds)
        self._askers = {name: _Asker(vendor) for name, vendor in inventory.vendors.items()}
        self._due_ns: dict[str, int] = {}
        self._last: dict[str, DeviceReading] = {}

    def rescan(self) -> bool:
        """Looks for devices again (driver loaded late, a card replaced). True when the node has to be described anew."""
        changed = self._inventory.scan(self._discover)
        if changed or not self._last:
            devices = {device.id: _limits(device) for device in self._inventory.devices}
            self._tracker.replace(devices)
            self._last = {device: reading for device, reading in self._last.items() if device in devices}
            self._due_ns.clear()
        return changed

    def observe(self, now_ns: int) -> Observation:
        """Asks the vendors that are due, and answers for all devices. `now_ns`: monotonic."""
        asked = [name for name in self._askers if now_ns >= self._due_ns.get(name, 0) and self._devices_of(name)]
        fresh = self._ask(asked)
        ids = [device.id for name in asked for device in self._devices_of(name)]
        changes = self._tracker.observe(fresh, now_ns, ids)
        for name in asked:
            self._due_ns[name] = now_ns + round(self._askers[name].vendor.period_s * 1e9)
        by_device = {reading.device: reading for reading in fresh}
        # A vanished device keeps none of its numbers.
        self._last.update((device, by_device.get(device, DeviceReading(device, SUSPECT))) for device in ids)
        push = self._push.due([self._stamped(device) for device in ids], changes)
        everything = tuple(self._stamped(device.id) for device in self._inventory.devices)
        return Observation(everything, push, tuple(changes))

    def close(self) -> None:
        """Ends the threads that still can end, and lets go of the drivers that still answer."""
        for asker in self._askers.values():
            asker.close()

    def _discover(self, vendor: Vendor) -> list[FoundDevice]:
        asker = self._askers[vendor.name]
        asker.ask("discover", vendor.discover)
        found: list[FoundDevice] = asker.answer("discover", self._discover_within_s)
        return found

    def _devices_of(self, vendor: str) -> list[Device]:
        return [device for device in self._inventory.devices if device.vendor == vendor]

    def _ask(self, names: Sequence[str]) -> list[DeviceReading]:
        """All at once, so that the slowest alone sets the time."""
        for name in names:
            vendor, devices = self._askers[name].vendor, self._devices_of(name)
            self._askers[name].ask("read", partial(vendor.read, devices))
        fresh: list[DeviceReading] = []
        for name in names:
            try:
                asker = self._askers[name]
                fresh += asker.answer("read", max(self._answer_within_s, asker.vendor.period_s))
            except VendorError as error:
                reason = f"unreadable: {error}"
                fresh += [DeviceReading(device.id, SUSPECT, reason) for device in self._devices_of(name)]
        return fresh

    def _stamped(self, device: str) -> DeviceReading:
        return self._tracker.stamped(self._last.get(device) or DeviceReading(device, "healthy"))


class _Asker:
    """One vendor's thread. At most one question is under way; while its answer is late no second one is asked."""

    def __init__(self, vendor: Vendor) -> None:
        self.vendor = vendor
        self._questions: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._what, self._asked_at = "", 0.0
        self._pending: Future[Any] | None = None
        threading.Thread(target=self._run, name=f"devices-{vendor.name}", daemon=True).start()

    def ask(self, what: str, question: Callable[[], Any]) -> None:
        """A late answer to the same question is still wanted (it may hold events that are told once); to another it is dropped."""
        if self._pending is not None and (self._what == what or not self._pending.done()):
            return
        self._what, self._asked_at, self._pending = what, time.monotonic(), Future()
        self._questions.put((self._pending, question))

    def answer(self, what: str, within_s: float) -> Any:
        """Raises VendorError when the vendor does, breaks, is late, or still busy with another question."""
        pending = self._pending
        assert pending is not None, "answer before ask"
        wait([pending], timeout=max(0.0, self._asked_at + within_s - time.monotonic()) if self._what == what else 0.0)
        if self._what != what or not pending.done():
            raise VendorError(f"{self.vendor.name} has not answered for {time.monotonic() - self._asked_at:.0f} s")
        self._pending = None
        error = pending.exception()
        if error is None or isinstance(error, VendorError):
            return pending.result()
        raise VendorError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """A thread that hangs in the driver is left behind."""
        self._questions.put(None)

    def _run(self) -> None:
        while (asked := self._questions.get()) is not None:
            future, question = asked
            try:
                future.set_result(question())
            except Exception as error:  # whatever a driver's binding throws must not end the watch
                future.set_exception(error)
        self.vendor.close()


def _limits(device: Device) -> Limits:
    return Limits(device.found.hot_celsius, device.found.critical_celsius)
