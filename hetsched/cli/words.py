"""JSON values of the daemon in people's words: bytes, shares, moments, devices."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any


def size(value: float | None) -> str:
    """Bytes as 16Gi."""
    if value is None:
        return "-"
    amount = float(value)
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if abs(amount) < 1024:
            return f"{amount:.3g}{unit}" if unit else f"{amount:.0f}"
        amount /= 1024
    return f"{amount:.4g}Pi"


def amount(milli: float | None) -> str:
    """Thousandths as a number: 2500 → 2.5."""
    return "-" if milli is None else f"{milli / 1000:g}"


def amounts(found: dict[str, Any]) -> str:
    """gpu=2 memory=16Gi; what is zero is left out."""
    told = ((name, size(n) if name == "memory" else f"{n:g}") for name, n in found.items() if n)
    return " ".join(f"{name}={text}" for name, text in told)


def request(found: dict[str, Any]) -> str:
    """cpu=4 memory=16Gi gpu=2 gpu_memory=20Gi: what a task asks for, as one would submit it."""
    told = []
    for name, ask in found.items():
        if not isinstance(ask, dict):
            told.append(f"{name}={size(ask) if name == 'memory' else value(ask)}")
            continue
        told.append(f"{name}={value(ask.get('count'))}")
        told += [f"{name}_{key}={size(n) if key == 'memory' else value(n)}" for key, n in ask.items() if key != "count"]
    return " ".join(told)


def devices(found: Iterable[dict[str, Any]]) -> str:
    """gpu-0,gpu-1:0.5 (whole devices without their share)."""
    return ",".join(d["id"] + ("" if d.get("share", 1000) == 1000 else f":{amount(d['share'])}") for d in found)


def moment(value: float | str | None) -> str:
    """Seconds since 1970, or RFC 3339, as the local time of day."""
    if value is None:
        return "-"
    try:
        at = datetime.fromisoformat(value).astimezone() if isinstance(value, str) else datetime.fromtimestamp(value)
    except (ValueError, OverflowError, OSError):
        return str(value)
    return at.strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A time ahead as people say it: 40 s, 12 min, 3.5 h, 2 d."""
    for unit, least, size_s in (("d", 2 * 86_400, 86_400), ("h", 2 * 3600, 3600), ("min", 120, 60)):
        if seconds >= least:
            return f"{seconds / size_s:.2g} {unit}" if seconds < 10 * size_s else f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def eta(found: dict[str, float]) -> str:
    """When something starts, from the likely to the late."""
    early, late = span(found["p50"]), span(found["p90"])
    if found["p50"] <= 0:
        return f"within {late}"
    return f"in {early}" if early == late else f"in {early} to {late}"


def value(found: Any) -> str:
    """Anything, on one line."""
    if isinstance(found, dict):
        return " ".join(f"{name}={value(item)}" for name, item in found.items())
    if isinstance(found, list | tuple):
        return ", ".join(value(item) for item in found)
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, float):
        return f"{found:.10g}"
    return "" if found is None else str(found)
