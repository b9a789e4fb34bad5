"""The terms of a node's rank, where each comes from, and what every preset weighs them by.

To add a term: a line in `TERMS`, its function in `terms.py` (or its place in `_core/terms.pxi`), a story in `tests/policy/`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hetsched._core import TERM_NAMES
from hetsched.config import Policy


class Term(msgspec.Struct, frozen=True):
    """`what` is 1 for the best node; `source` names whose formula it is."""

    what: str
    source: str


TERMS: dict[str, Term] = {
    "performance": Term(
        "the cost model's affinity: matrix-heavy 0.6 FLOPS + 0.3 memory bandwidth, control-heavy 0.7 single core, tensor-op 0.8 TOPS; "
        "times `policy.locality` where the node holds the task's data",
        "architecture document, compute_affinity_score; performance_match of the multi-criteria document",
    ),
    "delay": Term(
        "1 - the node's network delay over the largest", "multi-criteria document, calculate_score: 1 - latency_cost"
    ),
    "power": Term(
        "TFLOPS per watt of the devices asked, over the node's PUE",
        "multi-criteria document, calculate_score: power_efficiency",
    ),
    "priority": Term(
        "the task's priority, the same for every node", "multi-criteria document, calculate_score: priority_bonus"
    ),
    "locality": Term("the part of the task's data that the node holds", "architecture document, local_volumes"),
    "learned": Term(
        "speed of the node's device model for this type of task over how scarce the model is, learned from ended attempts; the cost model's, "
        "or 0.8, while unknown",
        "scheduling document, calculate_priority: historical_performance",
    ),
    "preset": Term("the preset's own score, where other terms are laid over it", "policy.preset"),
    "fragment": Term("free capacity that stays usable", "Weng et al., Beware of Fragmentation, USENIX ATC 2023"),
    "pack": Term("what the task asks for is used up here", "best fit, most allocated first"),
    "spread": Term("what the task asks for is left here", "worst fit, least allocated first"),
    "load": Term(
        "mean free part of all that the node has", "least-loaded baseline: least allocated over cores, memory, devices"
    ),
}
TOLD = tuple(name for name in TERMS if name not in TERM_NAMES)
"""Computed here and told to the core; the rest is the core's own."""

WEIGHTS: dict[str, dict[str, float]] = {
    "affinity": {"performance": 1.0},
    "multi-criteria": {"performance": 0.4, "delay": 0.2, "power": 0.3, "priority": 0.1},
    "least-loaded": {"load": 1.0},
}
"""Presets that are weighted sums of terms. Every other one is the core's own, and the one term `preset` where more is laid over it."""

BLENDED = tuple(WEIGHTS)

BEWARE = "Weng et al., Beware of Fragmentation, USENIX ATC 2023"
OWN_PRESETS: dict[str, Term] = {
    "price": Term(
        "the node's free room loses least worth to the tasks that come here, in steps of 20 thousandths of a device",
        "bid prices: Talluri and van Ryzin, Management Science 44, 1998; docs/rules/placing.md",
    ),
    "fragment": TERMS["fragment"],
    "pack": TERMS["pack"],
    "spread": TERMS["spread"],
    "random": Term("any node that fits, by chance", f"baseline of {BEWARE}"),
    "first-fit": Term("the node that joined first", "first fit"),
    "best-fit": Term("least free cores and devices are left", f"best fit as in {BEWARE}"),
    "dot-product": Term("what is asked is least along what is free", f"dot product as in {BEWARE}"),
    "packing": Term("devices that are begun before idle ones, idle ones before idle nodes", f"packing as in {BEWARE}"),
    "clustering": Term("nodes that hold tasks of the same size first", f"clustering as in {BEWARE}"),
    "fgd": Term("free capacity becomes least a fragment", BEWARE),
}
"""Presets of the core: what their own score says."""

OWN = {"preset": 1.0}

TYPE_WEIGHTS: dict[str, dict[str, dict[str, float]]] = {
    "multi-criteria": {
        "training": {"performance": 0.6, "delay": 0.1, "power": 0.2, "priority": 0.1},
        "edge-inference": {"performance": 0.3, "delay": 0.4, "power": 0.2, "priority": 0.1},
    },
}
"""What a preset weighs otherwise for a type of task: the same document says that training leans on performance, edge inference on delay."""


def is_blended(policy: Policy) -> bool:
    """Whether any task can be ranked by told terms under this configuration, or the preset is the core's own for all."""
    return policy.preset in BLENDED or bool(policy.weights or policy.types or policy.scorers)


def is_learning(policy: Policy) -> bool:
    """Whether any task is ranked by what was learned."""
    layers = (WEIGHTS.get(policy.preset, OWN), policy.weights, *policy.types.values())
    return any(layer.get("learned", 0) > 0 for layer in layers)


def weights_of(
    preset: str, task_type: str, over: Mapping[str, float], types: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Weights in effect for a type of task: the preset's, its own for the type, the configured ones, the configured ones for the type;
    later ones replace earlier ones term by term. Terms of weight 0 are left out."""
    out: dict[str, float] = {}
    for layer in (
        WEIGHTS.get(preset, OWN),
        TYPE_WEIGHTS.get(preset, {}).get(task_type, {}),
        over,
        types.get(task_type, {}),
    ):
        out.update(layer)
    return {name: weight for name, weight in out.items() if weight > 0}
