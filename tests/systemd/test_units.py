"""The systemd units: systemd itself finds nothing to complain about, and the keys that promises hang on are there."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

DAEMON = "hetsched.service"
AGENT = "hetsched-agent.service"


def unit(root: Path, name: str) -> dict[str, str]:
    """Keys of the [Service] section; a repeated key keeps its last value."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(root / "systemd" / name)
    return dict(parser["Service"])


@pytest.mark.parametrize("name", [DAEMON, AGENT])
def test_systemd_finds_nothing_to_complain_about(root: Path, tmp_path: Path, name: str) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed here")
    # The program is not installed at its final place on a developer's machine: any executable stands in for its path.
    text = (root / "systemd" / name).read_text().replace("/opt/hetsched/bin/hetsched", "/bin/true")
    (tmp_path / name).write_text(text)
    verdict = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    complaints = [line for line in (verdict.stdout + verdict.stderr).splitlines() if name in line]
    assert (verdict.returncode, complaints) == (0, [])  # it complains about a wrong key without failing


@pytest.mark.parametrize("name", [DAEMON, AGENT])
def test_both_tell_systemd_that_they_are_ready_and_alive(root: Path, name: str) -> None:
    keys = unit(root, name)
    assert keys["Type"] == "notify"
    assert int(keys["WatchdogSec"]) > 0
    assert keys["Restart"] == "always"
    assert keys["RestartPreventExitStatus"] == "2 78"
    assert keys["NoNewPrivileges"] == "yes"
    assert keys["User"] != "root"


def test_stopping_the_daemon_leaves_it_its_journal_server(root: Path) -> None:
    assert unit(root, DAEMON)["KillMode"] == "mixed"


def test_the_daemon_sees_nothing_it_does_not_need(root: Path) -> None:
    keys = unit(root, DAEMON)
    assert keys["ProtectSystem"] == "strict"
    assert keys["StateDirectory"] == "hetsched"
    assert keys["CapabilityBoundingSet"] == ""
    for key in ("ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables", "ProtectControlGroups"):
        assert keys[key] == "yes", key


def test_tasks_outlive_the_agent(root: Path) -> None:
    keys = unit(root, AGENT)
    assert keys["KillMode"] == "process"
    assert keys["Delegate"] == "yes"
    assert keys["OOMPolicy"] == "continue"
    assert "PrivateTmp" not in keys


def test_the_users_that_the_units_name_are_made(root: Path) -> None:
    lines = (root / "systemd" / "hetsched.sysusers.conf").read_text().splitlines()
    made = {line.split()[1] for line in lines if line.startswith("u ")}
    assert made == {unit(root, DAEMON)["User"], unit(root, AGENT)["User"]}
