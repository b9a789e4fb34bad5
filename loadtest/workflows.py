"""Workflow graphs of known shapes, drawn by seed: Montage, Epigenomics, CyberShake and random layered ones.

Structure and mean run times follow the published characterizations (Bharathi et al., Characterization of Scientific Workflows, WORKS 2008; Juve
et al., Characterizing and Profiling Scientific Workflows, FGCS 29, 2013), rounded; each run time varies by up to 30 %. A graph is as
`POST /v1/graphs` takes it, but for resources and speeds, which depend on the cluster (`clusters.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

MB = 1_000_000
VARIES = 0.3


class Drawing:
    """A graph that grows."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.operators: list[dict[str, Any]] = []

    def add(self, kind: str, cost: float, *after: tuple[str, float]) -> str:
        """An operator of about this cost; `after`: (id, megabytes that come from there)."""
        ident = f"{kind}-{len(self.operators)}"
        cost *= self.rng.uniform(1 - VARIES, 1 + VARIES)
        links = [{"id": parent, "data": round(megabytes * MB)} for parent, megabytes in after]
        self.operators.append({"id": ident, "kind": kind, "cost": round(cost, 3), "after": links})
        return ident


def montage(seed: int, images: int = 40) -> list[dict[str, Any]]:
    """Mosaics of the sky: project, compare overlapping pairs, fit a background, correct, add up."""
    draw = Drawing(seed)
    projected = [draw.add("project", 17.3) for _ in range(images)]
    fits = []
    for at, image in enumerate(projected):
        for step in (1, 6, 7):
            if at + step < images:
                other = projected[at + step]
                fits.append(draw.add("diff", 6.6, (image, 8.1), (other, 8.1)))
    model = draw.add("bgmodel", 38.4, (draw.add("concat", 14.3, *((fit, 0.6) for fit in fits)), 1.0))
    corrected = [draw.add("background", 17.2, (image, 8.1), (model, 0.1)) for image in projected]
    table = draw.add("imgtbl", 2.8, *((image, 8.1) for image in corrected))
    mosaic = draw.add("add", 28.2, (table, 0.1), *((image, 8.1) for image in corrected))
    draw.add("jpeg", 6.4, *((draw.add("shrink", 6.6, (mosaic, 150.0)), 25.0) for _ in range(4)))
    return draw.operators


def epigenomics(seed: int, lanes: int = 3, chunks: int = 12) -> list[dict[str, Any]]:
    """Reads of DNA: split by lane, four steps a chunk, merge twice, index and pile up."""
    draw = Drawing(seed)
    merged = []
    for _ in range(lanes):
        split = draw.add("split", 34.3)
        mapped = []
        for _ in range(chunks):
            filtered = draw.add("filter", 2.5, (split, 13.0))
            converted = draw.add("sanger", 0.5, (filtered, 13.0))
            packed = draw.add("bfq", 1.4, (converted, 10.0))
            mapped.append(draw.add("map", 201.9, (packed, 2.0)))
        merged.append(draw.add("merge", 11.0, *((one, 1.0) for one in mapped)))
    whole = draw.add("merge", 11.0, *((one, 12.0) for one in merged))
    draw.add("pileup", 55.9, (draw.add("index", 43.6, (whole, 36.0)), 110.0))
    return draw.operators


def cybershake(seed: int, sites: int = 4, ruptures: int = 15) -> list[dict[str, Any]]:
    """Seismic hazard: extract Green tensors, synthesize seismograms, peak values, two archives of everything."""
    draw = Drawing(seed)
    waves, peaks = [], []
    for _ in range(sites):
        tensors = draw.add("extract", 110.6)
        for _ in range(ruptures):
            wave = draw.add("synthesis", 79.5, (tensors, 150.0))
            waves.append(wave)
            peaks.append(draw.add("peak", 0.6, (wave, 0.2)))
    draw.add("zipseis", 26.0, *((wave, 0.2) for wave in waves))
    draw.add("zippsa", 19.5, *((peak, 0.01) for peak in peaks))
    return draw.operators


def layered(seed: int, operators: int = 120) -> list[dict[str, Any]]:
    """Layers of random width; each operator has one to three parents in the layer before and sometimes one further up."""
    draw = Drawing(seed)
    layers: list[list[str]] = []
    while len(draw.operators) < operators:
        layer = []
        for _ in range(draw.rng.randint(2, 16)):
            chosen: dict[str, None] = {}
            if layers:
                chosen.update(dict.fromkeys(draw.rng.sample(layers[-1], min(len(layers[-1]), draw.rng.randint(1, 3)))))
                if draw.rng.random() < 0.2:
                    chosen[draw.rng.choice(draw.rng.choice(layers))] = None
            kind = f"k{draw.rng.randrange(6)}"
            layer.append(draw.add(kind, draw.rng.uniform(5, 120), *((one, draw.rng.uniform(1, 400)) for one in chosen)))
        layers.append(layer)
    return draw.operators


SHAPES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "montage": montage,
    "epigenomics": epigenomics,
    "cybershake": cybershake,
    "layered": layered,
}
