"""The watch over all vendors: due ones are asked, late ones do not hold up the others, and what is pushed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hetsched.agent.discovery.inventory import Inventory
from hetsched.agent.discovery.vendor import Device, VendorError
from hetsched.agent.discovery.watch import DeviceWatch, Observation
from hetsched.agent.fake import STEERING_FILE, FakeVendor, parse_fake
from hetsched.wire import DeviceReading
from tests.agent.test_inventory import Maker, card

S = 1_000_000_000


class Moody(Maker):
    """A vendor that hangs while `stuck` is set, and throws what `breaks` holds."""

    def __init__(self, *present: object, name: str = "moody") -> None:
        super().__init__(*present, name=name)  # type: ignore[arg-type]
        self.free = threading.Event()
        self.free.set()
        self.breaks: Exception | None = None
        self.reads = 0

    def read(self, devices: Sequence[Device]) -> list[DeviceReading]:
        self.reads += 1
        self.free.wait(30)
        if self.breaks:
            raise self.breaks
        return super().read(devices)


def health(observation: Observation) -> dict[str, str]:
    return {reading.device: reading.health for reading in observation.readings}


@pytest.fixture
def moody() -> Iterator[Moody]:
    vendor = Moody(card("a", 1))
    yield vendor
    vendor.free.set()


def watching(*vendors: Maker, **more: float) -> DeviceWatch:
    watch = DeviceWatch(
        Inventory(vendors),
        answer_within_s=more.get("answer_within_s", 5.0),
        discover_within_s=more.get("discover_within_s", 5.0),
    )
    watch.rescan()
    return watch


def test_every_device_is_read_and_nothing_is_pushed_while_all_is_well(moody: Moody) -> None:
    look = watching(moody, Maker(card("t", 4, "tpu"))).observe(S)
    assert (health(look), look.push, look.changes) == ({"gpu-0": "healthy", "tpu-0": "healthy"}, (), ())


def test_a_vendor_is_not_asked_before_it_is_due(moody: Moody) -> None:
    watch = watching(moody)
    for now_ns in (S, S + S // 2, 2 * S, 2 * S + 1):
        assert health(watch.observe(now_ns)) == {"gpu-0": "healthy"}
    assert moody.reads == 2


def test_a_vanished_device_is_pushed_as_failed(moody: Moody) -> None:
    watch = watching(moody)
    watch.observe(S)
    moody.present.clear()
    look = watch.observe(2 * S)
    assert [(r.device, r.health, r.reason.partition(":")[0]) for r in look.push] == [("gpu-0", "failed", "vanished")]
    assert look.readings == look.push


def test_a_hung_driver_makes_its_devices_unreadable_and_then_failed_and_holds_up_nobody(moody: Moody) -> None:
    moody.period_s = 0.05
    watch = watching(moody, Maker(card("t", 4, "tpu")), answer_within_s=0.05)
    watch.observe(S)
    moody.free.clear()
    assert health(watch.observe(10 * S)) == {"gpu-0": "suspect", "tpu-0": "healthy"}
    before = time.monotonic()
    assert health(watch.observe(45 * S)) == {"gpu-0": "failed", "tpu-0": "healthy"}
    assert time.monotonic() - before < 1.0, "one that is late is not waited for again"
    assert moody.reads == 2, "nor asked again"
    moody.free.set()
    deadline = time.monotonic() + 10
    now_ns = 46 * S
    while health(watch.observe(now_ns))["gpu-0"] == "failed" and time.monotonic() < deadline:
        time.sleep(0.01)
        now_ns += 20 * S
    assert health(watch.observe(now_ns))["gpu-0"] == "suspect", "on probation"


@pytest.mark.parametrize("error", [VendorError("driver gone"), RuntimeError("segment of nonsense")])
def test_whatever_a_driver_throws_is_unreadable_and_not_the_end(moody: Moody, error: Exception) -> None:
    watch = watching(moody)
    moody.breaks = error
    (reading,) = watch.observe(S).readings
    assert (reading.health, reading.reason.startswith("unreadable: ")) == ("suspect", True)
    assert str(error) in reading.reason
    moody.breaks = None
    assert watch.observe(2 * S).readings[0].health == "suspect"
    assert watch.observe(70 * S).readings[0].health == "healthy"


def test_a_scan_waits_no_longer_than_it_may(moody: Moody) -> None:
    moody.period_s = 0.05
    watch = watching(moody, answer_within_s=0.05, discover_within_s=0.05)
    moody.free.clear()
    watch.observe(S)
    assert not watch.rescan()
    assert [reading.device for reading in watch.observe(2 * S).readings] == ["gpu-0"], "its devices are kept"


def test_a_new_device_is_watched_after_a_scan(moody: Moody) -> None:
    watch = watching(moody)
    watch.observe(S)
    moody.present.append(card("b", 2))
    assert watch.rescan()
    assert health(watch.observe(S + 1)) == {"gpu-0": "healthy", "gpu-1": "healthy"}


def test_closing_lets_go_of_the_driver(moody: Moody) -> None:
    watch = watching(moody)
    watch.close()
    deadline = time.monotonic() + 5
    while not moody.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert moody.closed == 1


def test_a_pretended_device_can_be_made_to_fail_from_outside(tmp_path: Path) -> None:
    """The whole way that end-to-end tests use: profile, steering file, judgement, push."""
    file = tmp_path / STEERING_FILE
    watch = DeviceWatch(Inventory([FakeVendor(parse_fake("gpu:A100:2"), file)]))
    watch.rescan()
    assert watch.observe(S).push == ()
    file.write_text(
        json.dumps({"gpu-0": {"utilization_percent": 95.0}, "gpu-1": {"health": "failed", "reason": "pulled"}})
    )
    look = watch.observe(2 * S)
    assert [(r.device, r.health, r.utilization_percent) for r in look.push] == [
        ("gpu-0", "healthy", 95.0),
        ("gpu-1", "failed", 0.0),
    ]
    assert watch.observe(3 * S).push == (), "told once"
    file.unlink()
    assert [(r.device, r.health) for r in watch.observe(90 * S).push] == [("gpu-1", "suspect")]
    assert [(r.device, r.health) for r in watch.observe(400 * S).push] == [("gpu-1", "healthy")]
