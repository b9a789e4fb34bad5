"""Whether this agent has a cgroup of its own below which it may give each task one (cgroup v2).

It does under systemd with `Delegate=yes`, in a container with a cgroup namespace of its own, and as an ordinary user whose
cgroup is writable. It does not take what was not given: a root agent started from a shell leaves the shell's scope alone.
Without one, tasks are ended by walking their tree, which gets the same done with more looks.
"""

from __future__ import annotations

import errno
import hashlib
import os
import signal
from collections.abc import Set
from pathlib import Path
from urllib.parse import quote

LIMITED = frozenset({"cpu", "memory"})


def tasks_cgroup(name: str, directory: Path) -> Path | None:
    """Where the tasks of the agent called `name` get their cgroups; None = none delegated. `directory`: the agent's own; it tells
    apart agents of one name, of which one would end the other's tasks in `sweep`.

    It is made by the first shim that needs it and removed by the last, so that an agent that is killed leaves nothing behind.
    """
    own = _own_cgroup()
    if own is None or not _is_delegated(*own):
        return None
    root, relative = own
    unique = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:12]
    parent = root / relative.lstrip("/")
    return parent / f"hetsched-{quote(name, safe='')[:64]}-{unique}" if os.access(parent, os.W_OK) else None


def controllers(tasks: Path | None) -> tuple[frozenset[str], str]:
    """(what can be limited in cgroups below `tasks`, for people: what is and why not the rest). Controllers can only be handed down by a
    cgroup without processes of its own, so the agent moves into a leaf if it is alone there."""
    if tasks is None:
        return frozenset(), "none: no cgroup is delegated to the agent"
    parent = tasks.parent
    wanted = LIMITED & set(_words(parent / "cgroup.controllers"))
    missing = wanted - set(_words(parent / "cgroup.subtree_control"))
    if missing and not _hand_down(parent, missing):
        _step_aside(parent)
        _hand_down(parent, missing)
    given = frozenset(LIMITED & set(_words(parent / "cgroup.subtree_control")))
    if given == LIMITED:
        return given, "cpu, memory"
    why = (
        "other processes are in the agent's cgroup"
        if wanted > given
        else "the kernel gives no controller to the agent's cgroup"
    )
    return given, f"{', '.join(sorted(given)) or 'none'}: {why}"


def _hand_down(parent: Path, names: Set[str]) -> bool:
    try:
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(names)))
    except OSError:
        return False
    return True


def _step_aside(parent: Path) -> None:
    """Into a leaf of our own, with nobody else: those are not ours to move."""
    if _words(parent / "cgroup.procs") != [str(os.getpid())]:
        return
    leaf = parent / "hetsched-agent"
    try:
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def group_name(shim: tuple[int, int]) -> str:
    """Of a shim's cgroup below that of all tasks (shim/c/group.c). `shim`: its pid and start time."""
    pid, start = shim
    return f"{pid}-{start}"


def sweep(path: Path, keep: set[str]) -> None:
    """Ends and removes cgroups of shims that nobody watches any more. `keep`: names of those that somebody does."""
    if not path.is_dir():
        return
    for child in path.iterdir():
        if child.is_dir() and child.name not in keep:
            _end(child)
    _remove(path)


def _end(path: Path) -> None:
    try:
        (path / "cgroup.kill").write_text("1")
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EACCES):
            raise
        for pid in members(path):
            os.kill(pid, signal.SIGKILL)
    for inner in sorted(path.rglob("*/"), reverse=True):
        _remove(inner)
    _remove(path)


def members(path: Path) -> list[int]:
    """Processes of a cgroup and of those below it; [] if it is gone."""
    found = []
    for listing in (path / "cgroup.procs", *path.rglob("*/cgroup.procs")):
        try:
            found += [int(line) for line in listing.read_text().split()]
        except OSError:
            continue
    return found


def _remove(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        pass  # there are processes in it; the next start sweeps again


def _own_cgroup() -> tuple[Path, str] | None:
    """(where cgroup v2 is mounted, this process's path in it)."""
    relative = next(
        (line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), None
    )
    if relative is None:
        return None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == "cgroup2":
            return Path(before.split()[4]), relative
    return None


def _is_delegated(root: Path, relative: str) -> bool:
    path = root / relative.lstrip("/")
    if os.geteuid() != 0:
        return os.access(path, os.W_OK) and os.access(path / "cgroup.procs", os.W_OK)
    if relative == "/":
        return True  # a container's own, or a machine without a service manager
    return any(_attribute(path, name) == b"1" for name in ("trusted.delegate", "user.delegate"))


def _attribute(path: Path, name: str) -> bytes:
    try:
        return os.getxattr(path, name)
    except OSError:
        return b""
