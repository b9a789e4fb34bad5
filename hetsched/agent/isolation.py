"""What a task sees of the machine: its environment, and in it the masks that show its devices and hide the others.

A mask variable is *always* set, empty where the task has none of its devices: unset would mean "all of them". Masks name devices by
what does not change (a UUID) where the vendor has that, else by index. `HETSCHED_*` and the masks are set last: a task's own `env`
cannot override them. The environment begins clean; nothing of the agent's own leaks into tasks.

Masks are advice that programs follow, not a wall: a program can unset them. Walls (the devices cgroup) are a later step, and
`docs` says so.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

import msgspec

from hetsched import wire
from hetsched.agent.policy import PATH, Account, Policy, is_denied

# Every variable by which a known runtime chooses devices. A vendor that joins adds its own (`Vendor.masks`).
MASKS = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
    "HABANA_VISIBLE_DEVICES",
)
# HIP numbers what ROCR has left over, so behind a ROCR mask its own is 0, 1, … again.
_RELATIVE = {"HIP_VISIBLE_DEVICES": "ROCR_VISIBLE_DEVICES"}
_PREFIX = {"ONEAPI_DEVICE_SELECTOR": "level_zero:"}


class Visible(msgspec.Struct, frozen=True):
    """How tasks are shown one device: the variables of its vendor, and what it is called in them."""

    variables: tuple[str, ...]
    name: str


def visible_by_kind(kind: str, index: int) -> Visible:
    """For devices whose vendor has no variables of its own (pretended ones): by index, where programs of that kind look."""
    return Visible(_OF_KIND.get(kind, ()), str(index))


_OF_KIND = {
    "gpu": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "tpu": ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"),
}


def through_own_mask(devices: Mapping[str, Visible], environ: Mapping[str, str]) -> dict[str, Visible]:
    """Indices counted inside the agent's own mask, turned into what those devices are called outside of it.

    Below an agent that was started with `CUDA_VISIBLE_DEVICES=2,3` device 1 is the one that a task has to be told as "3". Names
    that are no plain index (UUIDs) mean the same everywhere and stay.
    """
    return {device: _mapped(visible, environ) for device, visible in devices.items()}


def _mapped(visible: Visible, environ: Mapping[str, str]) -> Visible:
    if not visible.name.isdigit():
        return visible
    for variable in visible.variables:
        own = [part.strip() for part in environ.get(variable, "").split(",") if part.strip()]
        if own and own != ["all"] and int(visible.name) < len(own):
            return Visible(visible.variables, own[int(visible.name)])
    return visible


def masks(granted: Sequence[Visible]) -> dict[str, str]:
    """Every mask variable with its value."""
    names: dict[str, list[str]] = {variable: [] for variable in MASKS}
    for visible in granted:
        for variable in visible.variables:
            names.setdefault(variable, []).append(visible.name)
    for variable, behind in _RELATIVE.items():
        if names[behind]:
            names[variable] = [str(index) for index in range(len(names[variable]))]
    return {
        variable: _PREFIX.get(variable, "") + ",".join(entries) if entries else ""
        for variable, entries in names.items()
    }


_masks_of = functools.lru_cache(1024)(masks)


def environment(
    order: wire.Start,
    *,
    policy: Policy,
    account: Account,
    node: str,
    url: str,
    devices: Mapping[str, Visible],
) -> tuple[dict[str, str], list[str]]:
    """The task's environment, and a line for its stderr about each variable that the policy did not let through."""
    env = _base(account)
    notes = []
    for name, value in order.env.items():
        if is_denied(policy, name):
            notes.append(f"hetsched: {name} is not passed on here (agent.env_deny)")
        else:
            env[name] = value
    env.update(_masks_of(tuple([devices[device] for device, _ in order.devices if device in devices])))
    env.update(_identity(order, node, url))
    return env, notes


def _base(account: Account) -> dict[str, str]:
    base = {
        "PATH": PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        # Indices in masks are counted as nvidia-smi counts them.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if "TZ" in os.environ:
        base["TZ"] = os.environ["TZ"]
    return base


def _identity(order: wire.Start, node: str, url: str) -> dict[str, str]:
    """Who the task is; TASK, ATTEMPT and EPOCH let it fence its own side effects."""
    return {
        "HETSCHED_TASK": order.task,
        "HETSCHED_ATTEMPT": str(order.attempt),
        "HETSCHED_EPOCH": str(order.epoch),
        "HETSCHED_NODE": node,
        "HETSCHED_NAME": order.name,
        "HETSCHED_URL": url,
        "HETSCHED_DEVICES": ",".join(f"{device}:{share}" for device, share in order.devices),
        "HETSCHED_CPU_MILLI": str(order.cpu_milli),
        "HETSCHED_MEMORY_BYTES": str(order.memory_bytes),
    }
