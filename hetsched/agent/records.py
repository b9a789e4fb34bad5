"""From an order to the record that a shim executes: the node's policy applied, nothing left to decide."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hetsched import wire
from hetsched.agent import isolation, policy
from hetsched.agent.attempts import Key
from hetsched.agent.shim.lease import now_ns
from hetsched.agent.spool import directory_name

# In the environment of every process of an attempt: finds those that outlived a killed shim.
DIRECTORY_VARIABLE = "HETSCHED_ATTEMPT_DIR"

PERIOD_US = 100_000  # the kernel's own
LEAST_QUOTA_US = 1_000  # less it refuses


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What every record of this agent has in common. `url`: of the daemon, as last known. `tasks`: where attempts lie;
    `cgroup`: where they get theirs, None = nowhere; `controllers`: what can be limited there. `descriptors`: limits of open files that
    tasks get, soft and hard."""

    node: str
    url: Callable[[], str]
    boot_id: str
    tasks: Path
    lease: Path
    cgroup: Path | None
    controllers: frozenset[str] = frozenset()
    policy: policy.Policy
    devices: Mapping[str, isolation.Visible]
    descriptors: tuple[int, int] = resource.getrlimit(resource.RLIMIT_NOFILE)

    def directory(self, key: Key) -> Path:
        return self.tasks / directory_name(key)


def record_of(order: wire.Start, site: Site) -> dict[str, Any]:
    """The record of an attempt with a command. Raises policy.Refusal."""
    assert order.command is not None, "an attempt without a command is held, see held_record_of"
    unknown = [device for device, _ in order.devices if device not in site.devices]
    if unknown:
        raise policy.Refusal(f"this node has no {', '.join(unknown)}")
    account = policy.account_for(site.policy, order.user)
    env, notes = isolation.environment(
        order, policy=site.policy, account=account, node=site.node, url=site.url(), devices=site.devices
    )
    key = Key(order.task, order.attempt)
    directory = site.directory(key)
    env[DIRECTORY_VARIABLE] = str(directory)
    if "HOME" not in order.env and not os.path.isdir(account.home):
        env["HOME"] = order.workdir or str(directory / "work")  # `nobody` has none, and many programs need one
    return {
        "format": 1,
        "boot_id": site.boot_id,
        "argv": list(order.command),
        "executable": policy.executable_for(site.policy, order.command[0], env, order.workdir),
        "env": env,
        "notes": notes,
        "workdir": order.workdir,
        "uid": account.uid if account.switch else None,
        "gid": account.gid if account.switch else None,
        "groups": list(account.groups),
        "time_limit_s": order.time_limit_s,
        "grace_s": order.grace_s,
        "lease": str(site.lease),
        "log_bytes": site.policy.log_bytes,
        "cgroup": str(site.cgroup / directory_name(key)) if site.cgroup else None,
        "limits": limits_of(order, site.controllers),
    }


def limits_of(order: wire.Start, controllers: frozenset[str]) -> dict[str, str]:
    """File of the attempt's cgroup → what is written into it."""
    limits = {}
    if "cpu" in controllers and order.cpu_limit_milli:
        limits["cpu.max"] = f"{max(LEAST_QUOTA_US, order.cpu_limit_milli * PERIOD_US // 1000)} {PERIOD_US}"
    if "memory" in controllers and order.memory_limit_bytes:
        limits["memory.max"] = str(order.memory_limit_bytes)
    return limits


def held_record_of(order: wire.Start, site: Site) -> dict[str, Any]:
    """The record of an attempt without a command: it holds its devices until a time, in `lease.now_ns` time; None = until told."""
    until_ns = None if order.duration_s is None else now_ns() + int(order.duration_s * 1e9)
    return {"format": 1, "boot_id": site.boot_id, "argv": None, "held_until_ns": until_ns}
