"""Xids: which trouble takes a GPU out of service, and how the kernel's log tells of it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hetsched.agent.discovery.kernel_messages import KernelMessages
from hetsched.agent.discovery.xid import LAST_CATALOGUED, XIDS, KernelLog, XidEvent, judge_xid


def events(*lines: str) -> list[tuple[str, int]]:
    log = KernelLog()
    return [(event.pci, event.code) for line in lines if (event := log.feed(line)) is not None]


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 68, 121])
def test_the_applications_own_faults_are_not_the_devices(code: int) -> None:
    assert judge_xid(code).health == "healthy"


@pytest.mark.parametrize("code", [48, 62, 64, 79, 95, 119, 140])
def test_what_needs_a_reset_fails_the_device(code: int) -> None:
    verdict = judge_xid(code)
    assert verdict.health == "failed" and verdict.reason.startswith(f"xid {code} ")


def test_an_nvlink_event_is_as_bad_as_its_text_says() -> None:
    assert judge_xid(149).health == "suspect", "the number alone does not tell"
    assert judge_xid(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03").health == "suspect"
    assert judge_xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08").health == "failed"


@pytest.mark.parametrize(
    ("text", "health"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "suspect"),
        ("GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)", "failed"),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "failed"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "healthy"),
        ("", "healthy"),
    ],
)
def test_a_changed_recovery_action_means_what_it_changed_to(text: str, health: str) -> None:
    assert judge_xid(154, text).health == health


def test_a_number_beyond_the_catalogue_is_suspect() -> None:
    assert judge_xid(LAST_CATALOGUED + 1).health == "suspect"


def test_kernel_lines_with_and_without_pci_and_process() -> None:
    assert events(
        "[171.62] NVRM: Xid (PCI:0009:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0",
        "NVRM: Xid (0000:03:00): 14, Channel 00000001",
        "[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9B:00): 119, pid='<unknown>', name=<unknown>, Timeout",
        "NVRM: Xid (PCI:0000:05:00): 92",
    ) == [("0009:01:00.0", 145), ("0000:03:00.0", 14), ("0000:9b:00.0", 119), ("0000:05:00.0", 92)]


def test_falling_off_the_bus_is_79_also_where_no_number_is_told() -> None:
    assert events("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.") == [("0000:29:00.0", 79)]
    assert events(
        "NVRM: The NVIDIA GPU 0000:18:00.0",
        "NVRM: (PCI ID: 10de:2901) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ) == [("0000:18:00.0", 79)]


def test_lines_that_only_look_alike_tell_nothing() -> None:
    assert (
        events(
            "NVRM: Xid",
            "NVRM: Xid (invalid): some error",
            "NVRM: Xid error: xyz, invalid data",
            "NVRM: The NVIDIA GPU invalid-bdf.0",
            "NVRM: fallen off the bus and is not responding to commands.",
            "",
        )
        == []
    )


def test_kernel_records_are_followed_from_now_on(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_text("6,1,100,-;NVRM: Xid (PCI:0000:01:00): 79, old news\n")
    messages = KernelMessages.open(file)
    assert messages is not None
    assert messages.new_xids() == []
    with file.open("a") as log:
        log.write("6,2,101,-;usb 1-1: new device\n4,3,102,-;NVRM: Xid (PCI:0000:02:00): 48, DBE\n SUBSYSTEM=pci\n")
    assert messages.new_xids() == [XidEvent("0000:02:00.0", 48, "DBE")]
    assert messages.new_xids() == []
    messages.close()
    messages.close()


def test_without_the_right_to_read_there_are_no_messages(tmp_path: Path) -> None:
    assert KernelMessages.open(tmp_path / "absent") is None


def test_every_row_has_a_source() -> None:
    assert all(rule.source and rule.name and rule.effect in ("suspect", "failed") for rule in XIDS.values())


def test_the_table_agrees_with_the_published_catalogue(shared: Path) -> None:
    """Where it does not, the row says why after its semicolon."""
    path = shared / "fixtures/nvidia/xid-catalogue.csv"
    if not path.exists():
        pytest.skip("no recorded Xid catalogue")
    expected = {"RESET_GPU": "failed", "RESTART_BM": "failed", "RESTART_APP": "healthy", "IGNORE": "healthy"}
    rows = list(csv.DictReader(path.open()))
    assert max(int(row["xid"]) for row in rows) == LAST_CATALOGUED
    for row in rows:
        code, action = int(row["xid"]), row["immediate_action"]
        health = judge_xid(code).health
        if row["description"] == "Unused":
            assert health == "healthy", code
        elif action in expected and ";" not in getattr(XIDS.get(code), "source", ""):
            assert health == expected[action], (code, action)


def test_recorded_kernel_lines(shared: Path) -> None:
    path = shared / "fixtures/nvidia/logs/xid-kernel-lines.txt"
    if not path.exists():
        pytest.skip("no recorded kernel lines")
    log = KernelLog()
    seen = [event for line in path.read_text().splitlines() if (event := log.feed(line)) is not None]
    assert {event.code for event in seen} >= {14, 79, 145, 149, 154, 99999}
    assert sum(event.code == 79 for event in seen) == 7
    assert ("0000:18:00.0", 79) in [(event.pci, event.code) for event in seen]
