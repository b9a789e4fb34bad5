"""Terms of a rank as rows for people: value, weight, what is 1, whose formula it is; of the preset `price` also what the placement costs.

Promises: numbers come from the core (`Core.ranked`) and are of now: as if the task were placed on its node once more, with the neighbours
and the prices of today.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsched._core import PRICE_PART_NAMES
from hetsched.policy.presets import OWN_PRESETS, TERMS, Term

PRICE_PARTS: dict[str, str] = {
    "devices": "what its devices were worth free, by what is asked for (duals; Gilmore and Gomory 1961)",
    "premium": "their model is wanted by name",
    "apart": "fewer whole devices stay together on the node (below 0: what stays had been broken into anyway)",
    "cpu": "a half of the devices that are left without their usual cores (below 0: it takes devices that were)",
    "memory": "a fifth of the devices that are left without their usual memory (below 0: it takes devices that were)",
    "wide": "nodes with as many devices are what tasks need that ask for several",
}
"""What a part of the price says, in thousandths of a device."""

assert tuple(PRICE_PARTS) == PRICE_PART_NAMES


def term_row(name: str, term: Term, weight: float, value: float | None) -> dict[str, Any]:
    """`value`: 0 to 1; None: there is no number to be had."""
    return {"term": name, "weight": weight, "value": value, "what": term.what, "source": term.source}


def preset_row(preset: str, weight: float, value: float | None, lost: Mapping[str, int]) -> dict[str, Any]:
    """The preset's own score. `lost`: what the node's free room is worth less by the placement, tenths of a thousandth of a device by
    PRICE_PART_NAMES; empty for all but `price`."""
    row = term_row("preset", OWN_PRESETS.get(preset, TERMS["pack"]), weight, value)
    row["preset"] = preset if preset in OWN_PRESETS else "pack"
    if lost:
        row["parts"] = [{"part": name, "value": lost[name] / 10, "what": what} for name, what in PRICE_PARTS.items()]
        row["loses"] = sum(lost.values()) / 10
    return row
