"""From an order to the record that a shim executes, and to the line of it in the ledger: the node's policy applied, nothing left to
decide."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from hetsched import wire
from hetsched.agent import isolation, policy
from hetsched.agent.attempts import Key, holds_of
from hetsched.agent.ledger import Ordered
from hetsched.agent.shim.lease import now_ns
from hetsched.agent.spool import directory_name

# In the environment of every process of an attempt: finds those that outlived a killed shim.
DIRECTORY_VARIABLE = "HETSCHED_ATTEMPT_DIR"

PERIOD_US = 100_000  # the kernel's own
LEAST_QUOTA_US = 1_000  # less it refuses

_LOOK_S = 5.0  # users and their homes


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


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a shim executes, and how. `name`: of the attempt's directory. `executable` None: searched for in the PATH of `env`; `workdir` None:
    one of its own; `uid` None: as the agent's user; `cgroup`: below which its shim has one, None: nowhere. `notes`: lines for the task's
    stderr, before its own. `generation`: of the lease under which it was ordered."""

    name: str
    generation: int
    argv: tuple[str, ...]
    executable: str | None
    env: dict[str, str]
    notes: list[str]
    workdir: str | None
    uid: int | None
    gid: int | None
    groups: tuple[int, ...]
    time_limit_s: float | None
    grace_s: float
    log_bytes: int
    cgroup: str | None
    limits: dict[str, str]


class Recorder:
    """Makes records for one site. What does not change from task to task is looked up anew after a few seconds."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._tasks = str(site.tasks)
        self._accounts: dict[str | None, tuple[policy.Account, bool]] = {}
        self._looked_s = 0.0

    def record_of(self, order: wire.Start, generation: int) -> Record:
        """The record of an attempt with a command, ordered under that generation of the lease. Raises policy.Refusal."""
        assert order.command is not None, "an attempt without a command is held, see held_line_of"
        site = self._site
        unknown = [device for device, _ in order.devices if device not in site.devices]
        if unknown:
            raise policy.Refusal(f"this node has no {', '.join(unknown)}")
        if any("\0" in text for text in (*order.command, *order.env, *order.env.values(), order.workdir or "")):
            raise policy.Refusal("a NUL in its command, environment or work directory")
        account, has_home = self._account(order.user)
        env, notes = isolation.environment(
            order, policy=site.policy, account=account, node=site.node, url=site.url(), devices=site.devices
        )
        name = directory_name(Key(order.task, order.attempt))
        env[DIRECTORY_VARIABLE] = directory = f"{self._tasks}/{name}"
        if not has_home and "HOME" not in order.env:
            env["HOME"] = order.workdir or f"{directory}/work"  # `nobody` has none, and many programs need one
        return Record(
            name=name,
            generation=generation,
            argv=order.command,
            executable=policy.executable_for(site.policy, order.command[0], env, order.workdir),
            env=env,
            notes=notes,
            workdir=order.workdir,
            uid=account.uid if account.switch else None,
            gid=account.gid if account.switch else None,
            groups=account.groups,
            time_limit_s=order.time_limit_s,
            grace_s=order.grace_s,
            log_bytes=site.policy.log_bytes,
            cgroup=str(site.cgroup) if site.cgroup else None,
            limits=limits_of(order, site.controllers),
        )

    def _account(self, user: str | None) -> tuple[policy.Account, bool]:
        """And whether it has a home."""
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_S:
            self._accounts.clear()
            self._looked_s = now_s
        found = self._accounts.get(user)
        if found is None:
            account = policy.account_for(self._site.policy, user)
            found = self._accounts[user] = account, os.path.isdir(account.home)
        return found


def line_of(order: wire.Start, record: Record, site: Site) -> Ordered:
    """What the ledger keeps of it."""
    return Ordered(
        order.task, order.attempt, site.boot_id, order.command, None, holds_of(order), record.uid, record.cgroup or ""
    )


def held_line_of(order: wire.Start, site: Site) -> Ordered:
    """Of an attempt without a command: it holds its devices until a time, in `lease.now_ns` time; None = until told."""
    until_ns = None if order.duration_s is None else now_ns() + int(order.duration_s * 1e9)
    return Ordered(order.task, order.attempt, site.boot_id, None, until_ns, holds_of(order))


def limits_of(order: wire.Start, controllers: frozenset[str]) -> dict[str, str]:
    """File of the attempt's cgroup → what is written into it."""
    limits = {}
    if "cpu" in controllers and order.cpu_limit_milli:
        limits["cpu.max"] = f"{max(LEAST_QUOTA_US, order.cpu_limit_milli * PERIOD_US // 1000)} {PERIOD_US}"
    if "memory" in controllers and order.memory_limit_bytes:
        limits["memory.max"] = str(order.memory_limit_bytes)
    return limits
