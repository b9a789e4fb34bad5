"""`resources`, `limits` and `usage`: what a task asks of one node, from JSON to integers.

Keys are `cpu`, `memory`, a device kind (or its Kubernetes name), and `KIND_memory`; see CONTRACT section 2.1.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec

from hetsched.model import reader
from hetsched.model.reader import Faults, below
from hetsched.model.task import DeviceAsk, Resources, Usage
from hetsched.model.words import DEVICE_ALIASES
from hetsched.quantity import LARGEST, QuantityError, cpu_milli, memory_bytes, share_milli

MOST_KINDS = 4
"""Device kinds in one task: as many as a shape of the core has room for."""

MOST_MODELS = 16
MOST_STEPS = 256
KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
kind_name = reader.text(32, KIND, "a lower-case word (gpu, tpu, fpga, npu, asic, ...)")
model_name = reader.text(64)
_cpu = reader.quantity(cpu_milli)
_memory = reader.quantity(memory_bytes)
_seconds = reader.seconds()
_list_of_models = reader.items(model_name, MOST_MODELS)


def read_models(faults: Faults, at: str, value: object) -> tuple[str, ...]:
    """Reader of a list of models, best first; one that is said twice counts where it is said first."""
    return tuple(dict.fromkeys(_list_of_models(faults, at, value)))


def read_resources(faults: Faults, pointer: str, raw: object) -> Resources:
    """Reader of an object of amounts; `gpu: 0` means that none is asked."""
    if not isinstance(raw, dict):
        faults.wrong_type(pointer, "an object", raw)
        return Resources()
    amounts = {"cpu": 0, "memory": 0}
    asks: dict[str, DeviceAsk | None] = {}
    per_device: dict[str, tuple[str, int]] = {}
    for key, value in raw.items():
        at = below(pointer, key)
        if key == "cpu":
            amounts["cpu"] = _cpu(faults, at, value)
        elif key == "memory":
            amounts["memory"] = _memory(faults, at, value)
        elif isinstance(key, str) and (kind := memory_of(key)) is not None:
            if kind in per_device:
                faults.add(at, f"memory per {kind} is said twice")
            per_device[kind] = (at, _memory(faults, at, value))
        else:
            _note_ask(faults, at, key, value, asks)
    _add_memory(faults, asks, per_device)
    devices = tuple(ask for ask in asks.values() if ask is not None and ask.total_milli)
    if len(devices) > MOST_KINDS:
        faults.add(pointer, f"must ask for at most {MOST_KINDS} kinds of devices")
    return Resources(cpu_milli=amounts["cpu"], memory_bytes=amounts["memory"], devices=devices)


def memory_of(key: str) -> str | None:
    """The kind of whose memory a key like `gpu_memory` or `nvidia.com/gpu_memory` speaks."""
    if not key.endswith("_memory"):
        return None
    kind = key.removesuffix("_memory")
    kind = DEVICE_ALIASES.get(kind, kind)
    return kind if KIND.fullmatch(kind) else None


def _note_ask(faults: Faults, at: str, key: object, value: object, asks: dict[str, DeviceAsk | None]) -> None:
    kind = DEVICE_ALIASES.get(key, key) if isinstance(key, str) else ""
    if not KIND.fullmatch(kind):
        known = ("cpu", "memory", "gpu", "tpu", "fpga", "npu", "asic")
        faults.add(at, reader.unknown(key, known, "resource") if len(faults.errors) < reader.MOST_FAULTS else "unknown")
    elif kind in asks:
        faults.add(at, f"{kind} is said twice")
    elif len(asks) >= 4 * MOST_KINDS:
        faults.add(at, f"must ask for at most {MOST_KINDS} kinds of devices")
    else:
        asks[kind] = _read_ask(faults, at, kind, value)


def _read_ask(faults: Faults, at: str, kind: str, value: object) -> DeviceAsk | None:
    if isinstance(value, dict):
        return _read_long_ask(faults, at, kind, value)
    return _ask(kind, _milli(faults, at, value))


def _read_long_ask(faults: Faults, at: str, kind: str, value: dict[Any, Any]) -> DeviceAsk | None:
    said = reader.fields(faults, at, value, _LONG)
    count, share = said.get("count", 1000), said.get("share")
    more = {"memory_bytes": said.get("memory", 0), "models": said.get("model", ())}
    if share is None or share == 1000:
        return _ask(kind, count, **more)
    if not 0 < share < 1000:
        faults.add(f"{at}/share", "must be above 0 and at most 1")
    elif count % 1000:
        faults.add(f"{at}/count", "must be a whole number beside share: so many parts on as many devices")
    else:
        return DeviceAsk(kind=kind, parts=count // 1000, part_milli=share, **more)
    return None


def _ask(kind: str, milli: int, **more: Any) -> DeviceAsk:
    """2500 thousandths are two whole devices and half of a third."""
    part = milli % 1000
    return DeviceAsk(kind=kind, whole=milli // 1000, parts=1 if part else 0, part_milli=part, **more)


def _add_memory(faults: Faults, asks: dict[str, DeviceAsk | None], per_device: dict[str, tuple[str, int]]) -> None:
    for kind, (at, amount) in per_device.items():
        if kind not in asks:
            faults.add(at, f"says the memory of each {kind}, but no {kind} is asked for")
            continue
        ask = asks[kind]
        if ask is not None and ask.memory_bytes not in (0, amount):
            faults.add(at, f"contradicts the memory inside {kind}")
        elif ask is not None:
            asks[kind] = msgspec.structs.replace(ask, memory_bytes=amount)


def _milli(faults: Faults, at: str, value: object) -> int:
    try:
        return share_milli(value)
    except QuantityError as error:
        faults.add(at, str(error))
        return 0


def _model_or_models(faults: Faults, at: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (model_name(faults, at, value),)
    return read_models(faults, at, value)


_LONG: dict[str, reader.Reader[Any]] = {
    "count": _milli,
    "share": _milli,
    "memory": _memory,
    "model": _model_or_models,
}


def read_usage(faults: Faults, pointer: str, raw: object) -> Usage:
    """Reader of what a simulated task really uses: a part of all that it asks for (0.25), amounts like `resources`, those left out as
    asked, or a list of either as objects with `at`, in order of time."""
    if not isinstance(raw, list):
        return _usage_step(faults, pointer, raw)
    if not 0 < len(raw) <= MOST_STEPS:
        faults.add(pointer, f"must have 1 to {MOST_STEPS} steps")
        return Usage()
    steps = [_usage_step(faults, f"{pointer}/{index}", step) for index, step in enumerate(raw)]
    for index, (before, after) in enumerate(itertools.pairwise(steps), 1):
        if after.at <= before.at:
            faults.add(f"{pointer}/{index}/at", "must be later than the step before")
    first = steps[0] if steps[0].at == 0 else Usage()
    return msgspec.structs.replace(first, later=tuple(steps[1:] if steps[0].at == 0 else steps))


def _usage_step(faults: Faults, pointer: str, raw: object) -> Usage:
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return Usage(part_milli=_part(faults, pointer, raw))
    if not isinstance(raw, dict):
        faults.wrong_type(pointer, "an object, or a part from 0 to 1", raw)
        return Usage()
    amounts = {key: value for key, value in raw.items() if key not in ("at", "part")}
    used = read_resources(faults, pointer, amounts)
    return Usage(
        cpu_milli=used.cpu_milli if "cpu" in raw else None,
        memory_bytes=used.memory_bytes if "memory" in raw else None,
        devices_milli={ask.kind: ask.total_milli for ask in used.devices},
        part_milli=_part(faults, below(pointer, "part"), raw["part"]) if "part" in raw else 1000,
        at=_seconds(faults, below(pointer, "at"), raw["at"]) if "at" in raw else 0.0,
    )


def _part(faults: Faults, at: str, value: object) -> int:
    milli = _milli(faults, at, value)
    if milli > 1000:
        faults.add(at, "must be a part from 0 to 1")
        return 1000
    return milli


def read_amounts(faults: Faults, pointer: str, raw: object) -> dict[str, int]:
    """Reader of a queue's `guaranteed` or `limit`: cpu in millicores, memory in bytes, kinds in thousandths; 0 stays 0."""
    if not isinstance(raw, dict):
        faults.wrong_type(pointer, "an object", raw)
        return {}
    out: dict[str, int] = {}
    for key, value in raw.items():
        at = below(pointer, key)
        name = DEVICE_ALIASES.get(key, key) if isinstance(key, str) else ""
        if name == "cpu":
            out[name] = min(_cpu(faults, at, value), LARGEST)
        elif name == "memory":
            out[name] = _memory(faults, at, value)
        elif KIND.fullmatch(name) and len(out) < 18:
            out[name] = min(_milli(faults, at, value), LARGEST)
        else:
            faults.add(at, reader.unknown(key, ("cpu", "memory", "gpu", "tpu", "fpga", "npu", "asic"), "resource"))
    return out
