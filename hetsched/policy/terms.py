"""The told terms, one function each: a shape and the fleet in, a number from 0 to 1 a node out, 1 best.

Every figure is normalised by the largest of the cluster. Where a node's figure is unknown it counts as the smallest known one (nothing
says that it is better); where nobody's is known the term is 0.5 for all, so that it orders nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched.model import DeviceAsk
from hetsched.policy.fleet import Devices, Fleet, Vector, fastest
from hetsched.policy.shape import ShapeWords
from hetsched.policy.speeds import NO_FACTORS, UNKNOWN_SPEED, Shown, speeds

NEUTRAL = 0.5


def normalised(values: Vector) -> Vector:
    """Over the largest; unknown as the smallest known; NEUTRAL everywhere if none is known."""
    known = values[~np.isnan(values)]
    if known.size == 0 or known.max() <= 0:
        return np.full(values.shape, NEUTRAL)
    out: Vector = np.where(np.isnan(values), known.min(), values) / known.max()
    return out


def performance(shape: ShapeWords, fleet: Fleet, locality_factor: float) -> Vector:
    """compute_affinity_score of the architecture document, normalised: each pattern's coefficients over their sum, and the bonus of
    data that lies there (a factor, by the part of the data) over its largest."""
    value = _affinity(shape, fleet)
    if shape.data:
        value = value * (1 + (locality_factor - 1) * locality(shape, fleet)) / max(locality_factor, 1.0)
    return value


def _affinity(shape: ShapeWords, fleet: Fleet) -> Vector:
    pattern = shape.pattern or pattern_of(shape.asks)
    if pattern == "control-heavy":
        return normalised(fleet.single_core)
    if not shape.asks or pattern is None:
        return np.full(fleet.size, NEUTRAL)
    if pattern == "tensor-op":
        return normalised(fleet.devices(shape.asks, "tops"))
    flops = normalised(fleet.devices(shape.asks, "tflops"))
    return (0.6 * flops + 0.3 * normalised(fleet.devices(shape.asks, "bandwidth_gbs"))) / (0.6 + 0.3)


def pattern_of(asks: tuple[DeviceAsk, ...]) -> str | None:
    """Of a task that names none, by what it asks for: GPUs for matrices, tensor engines for tensor operations, nothing for control flow."""
    kinds = {ask.kind for ask in asks}
    if "gpu" in kinds:
        return "matrix-heavy"
    if kinds & {"tpu", "npu", "asic"}:
        return "tensor-op"
    return None if kinds else "control-heavy"


def locality(shape: ShapeWords, fleet: Fleet) -> Vector:
    """Part of the shape's volumes that the node holds; 1 where it asks for none."""
    if not shape.data:
        return np.ones(fleet.size)
    return sum((fleet.holds(volume) for volume in shape.data), np.zeros(fleet.size)) / len(shape.data)


def delay(shape: ShapeWords, fleet: Fleet, locality_factor: float) -> Vector:
    """1 - delay over the largest; unknown delays count as the largest."""
    known = fleet.delay_s[~np.isnan(fleet.delay_s)]
    if known.size == 0 or known.max() <= 0:
        return np.full(fleet.size, NEUTRAL)
    out: Vector = 1 - np.where(np.isnan(fleet.delay_s), known.max(), fleet.delay_s) / known.max()
    return out


def power(shape: ShapeWords, fleet: Fleet, locality_factor: float) -> Vector:
    """TFLOPS per watt of the devices asked (int8 TOPS per watt for tensor work), over PUE. A shape without devices: over PUE alone."""
    work = np.ones(fleet.size)
    if shape.asks:
        figure = "tops" if (shape.pattern or pattern_of(shape.asks)) == "tensor-op" else "tflops"
        work = normalised(fleet.devices(shape.asks, figure) / fleet.devices(shape.asks, "watts"))
    pue = normalised(1 / fleet.pue)
    return work * pue / max(1e-9, float(pue.max(initial=0.0)))


def priority(shape: ShapeWords, fleet: Fleet, locality_factor: float) -> Vector:
    """The same for every node: `task.priority * 10` of the document would swamp the other terms, and can order tasks, never nodes."""
    return np.full(fleet.size, NEUTRAL)


def learned(
    shape: ShapeWords,
    fleet: Fleet,
    shown: Mapping[str, Shown],
    scarce: Mapping[str, float] = NO_FACTORS,
    off: Mapping[str, float] = NO_FACTORS,
) -> Vector:
    """Speed of the node's device models for this type of task, each over how scarce the model is (see speeds), mean over the devices that
    it would get; without devices asked the same for all: cores are not told apart by model."""
    if not shape.asks:
        return np.full(fleet.size, UNKNOWN_SPEED)
    is_tensor = (shape.pattern or pattern_of(shape.asks)) == "tensor-op"
    by_model = speeds(shown, fleet.different_devices(shape.asks), is_tensor=is_tensor, scarce=scarce, off=off)

    def speed(devices: Devices) -> float | None:
        mine = fastest(devices, shape.asks, lambda device: by_model[device.model or ""])
        known = [by_model[device.model or ""] for device in mine]
        return sum(known) / len(known) if known else None

    return np.nan_to_num(fleet.each_group(speed))
