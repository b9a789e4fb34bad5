"""What an agent here could hold tasks to: cgroups with which controllers, and namespaces. Nothing is moved and nothing handed down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hetsched.agent.delegation import LIMITED, tasks_cgroup
from hetsched.doctor.check import Check, ok, warn

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def checks(data_dir: Path) -> Iterator[Check]:
    """For the agent."""
    yield _cgroups(data_dir)
    yield _namespaces()


def _cgroups(data_dir: Path) -> Check:
    parent = tasks_cgroup("doctor", data_dir)
    if parent is None:
        fix = "run the agent as a systemd service with Delegate=yes; without, tasks are ended by walking their trees and not held to limits"
        return warn("cgroup", "no cgroup v2 is delegated to this process", fix)
    here = parent.parent
    controllers = set(_words(here / "cgroup.controllers"))
    missing = sorted(LIMITED - controllers)
    found = f"delegated, with {', '.join(sorted(controllers)) or 'no controllers'}"
    if missing:
        fix = f"let the parent hand {' and '.join(missing)} down (Delegate=cpu memory); until then tasks are not held to them"
        return warn("cgroup", found, fix)
    return ok("cgroup", found)


def _namespaces() -> Check:
    there = [name for name in NAMESPACES if Path("/proc/self/ns", name).exists()]
    missing = sorted(set(NAMESPACES) - set(there))
    if missing:
        return warn(
            "namespaces", f"without {', '.join(missing)}", "a kernel with namespaces; tasks run without them until then"
        )
    most = _words(Path("/proc/sys/user/max_user_namespaces"))
    if most == ["0"]:
        return warn("namespaces", "user namespaces are switched off", "sysctl user.max_user_namespaces=15000")
    return ok("namespaces", ", ".join(there))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
