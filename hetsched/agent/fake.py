"""Pretended devices: `--fake gpu:A100:8,tpu:v5e:4,cpu:64,memory:256Gi`. The tasks on them are real processes.

How they are can be steered from outside by a small file, `fake-health.json` in the agent's data directory, read anew at every reading:

    {"gpu-0": {"utilization_percent": 95}, "gpu-1": {"health": "failed", "reason": "pulled"}, "tpu-0": {"health": "vanished"}}
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from hetsched.agent.discovery.catalogue import default_memory_bytes
from hetsched.agent.discovery.host import Host
from hetsched.agent.discovery.vendor import Device, FoundDevice, Verdict, worst
from hetsched.agent.discovery.xid import judge_xid
from hetsched.quantity import QuantityError, cpu_milli, memory_bytes
from hetsched.wire import DeviceReading

STEERING_FILE = "fake-health.json"
_MOST_DEVICES = 1024  # of one kind; a slip of the finger should not become a million devices
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

log = logging.getLogger(__name__)


class FakeGroup(msgspec.Struct, frozen=True):
    """`count` devices alike. `memory_bytes` None = the model's usual, where it is known."""

    kind: str
    model: str
    count: int
    memory_bytes: int | None = None


class FakeProfile(msgspec.Struct, frozen=True):
    """What `--fake` pretends; None = the machine's own."""

    groups: tuple[FakeGroup, ...] = ()
    cpu_milli: int | None = None
    memory_bytes: int | None = None

    def host(self, real: Host) -> Host:
        """The machine as pretended."""
        return msgspec.structs.replace(
            real,
            cpu_milli=real.cpu_milli if self.cpu_milli is None else self.cpu_milli,
            memory_bytes=real.memory_bytes if self.memory_bytes is None else self.memory_bytes,
        )


class FakeProfileError(ValueError):
    """Names the part of the profile and the rule that it breaks."""

    def __init__(self, part: str, rule: str) -> None:
        super().__init__(f"--fake: {part!r}: {rule}")
        self.part = part
        self.rule = rule


class FakeReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the steering file may say of one device. `health` "vanished" = it is not there any more. All of it holds until the file changes."""

    health: Literal["healthy", "suspect", "failed", "vanished"] = "healthy"
    reason: str = ""
    utilization_percent: float | None = 0.0
    memory_used_bytes: int | None = 0
    temperature_celsius: float | None = None
    power_watts: float | None = None
    ecc_uncorrected: int | None = None
    xids: tuple[int, ...] = ()


def parse_fake(text: str) -> FakeProfile:
    """ "gpu:A100:8:40Gi,cpu:64" → its profile. Raises FakeProfileError."""
    groups: list[FakeGroup] = []
    amounts: dict[str, int] = {}
    for part in text.split(","):
        words = part.split(":")
        if words[0] in ("cpu", "memory"):
            if words[0] in amounts:
                raise FakeProfileError(part, f"{words[0]} is given twice")
            amounts[words[0]] = _amount(part, words)
        else:
            groups.append(_group(part, words))
    for kind in {group.kind for group in groups}:
        if sum(group.count for group in groups if group.kind == kind) > _MOST_DEVICES:
            raise FakeProfileError(text, f"more than {_MOST_DEVICES} devices of kind {kind}")
    return FakeProfile(tuple(groups), amounts.get("cpu"), amounts.get("memory"))


def _amount(part: str, words: Sequence[str]) -> int:
    if len(words) != 2:
        raise FakeProfileError(part, f"must be {words[0]}:AMOUNT")
    try:
        amount = cpu_milli(words[1]) if words[0] == "cpu" else memory_bytes(words[1])
    except QuantityError as error:
        raise FakeProfileError(part, str(error)) from error
    if amount == 0:
        raise FakeProfileError(part, "must be above 0")
    return amount


def _group(part: str, words: Sequence[str]) -> FakeGroup:
    if len(words) not in (3, 4):
        raise FakeProfileError(part, "must be KIND:MODEL:COUNT or KIND:MODEL:COUNT:MEMORY, cpu:AMOUNT or memory:AMOUNT")
    kind, model, count = words[:3]
    if not _KIND.fullmatch(kind):
        raise FakeProfileError(part, "a kind is a lower-case word")
    if not _MODEL.fullmatch(model):
        raise FakeProfileError(part, "a model is a word of letters, digits, '.', '_', '-'")
    if not re.fullmatch(r"[0-9]{1,6}", count) or not 1 <= int(count) <= _MOST_DEVICES:
        raise FakeProfileError(part, f"the count must be a whole number from 1 to {_MOST_DEVICES}")
    try:
        memory = memory_bytes(words[3]) if len(words) == 4 else None
    except QuantityError as error:
        raise FakeProfileError(part, f"memory: {error}") from error
    return FakeGroup(kind, model, int(count), memory)


class FakeVendor:
    """Answers for the pretended devices, as steered. Without a steering file they idle in good health."""

    name = "fake"
    masks: tuple[str, ...] = ()
    period_s = 0.2  # costs a stat; tests that steer it want to see it soon

    def __init__(self, profile: FakeProfile, steering: Path | None = None) -> None:
        self._profile = profile
        self._steering = steering
        self._stamp: tuple[int, int, int] | None = None
        self._steered: dict[str, FakeReading] = {}

    def discover(self) -> list[FoundDevice]:
        """In the order of the profile."""
        found: list[FoundDevice] = []
        numbers: dict[str, int] = {}
        for group in self._profile.groups:
            memory = default_memory_bytes(group.model) if group.memory_bytes is None else group.memory_bytes
            for _ in range(group.count):
                number = numbers[group.kind] = numbers.get(group.kind, -1) + 1
                key = f"fake-{group.kind}-{number}"
                found.append(
                    FoundDevice(key=key, kind=group.kind, model=group.model, mask=str(number), memory_bytes=memory)
                )
        return found

    def read(self, devices: Sequence[Device]) -> list[DeviceReading]:
        """As the steering file says now."""
        self._refresh()
        return list(self._readings(devices))

    def close(self) -> None:
        """Holds nothing."""

    def _readings(self, devices: Iterable[Device]) -> Iterable[DeviceReading]:
        for device in devices:
            told = self._steered.get(device.id, FakeReading())
            if told.health != "vanished":
                verdict = worst([Verdict(told.health, told.reason), *map(judge_xid, told.xids)])
                numbers = msgspec.structs.asdict(told) | {"health": verdict.health, "reason": verdict.reason}
                yield DeviceReading(device=device.id, memory_total_bytes=device.found.memory_bytes, **numbers)

    def _refresh(self) -> None:
        """A file that is gone steers nothing; one that cannot be read (half written) leaves things as they were."""
        if self._steering is None:
            return
        try:
            status = self._steering.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp != self._stamp:
                self._steered = msgspec.json.decode(self._steering.read_bytes(), type=dict[str, FakeReading])
                self._stamp = stamp
        except FileNotFoundError:
            self._steered, self._stamp = {}, None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("%s is not understood, pretended devices stay as they were: %s", self._steering, error)
