"""What accelerators are called and how much memory they have, for names that the hardware gives in many spellings.

`model_of_name` makes one word of a marketing name ("NVIDIA A100-SXM4-40GB" → "A100"), the word that tasks ask for. The table of
memories serves pretended devices and those that do not tell their own (TPUs).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

GIB = 1 << 30

# Memory of one device in GiB, as its maker states it; of the smallest variant where there are several.
_MEMORY_GIB: Mapping[str, float] = MappingProxyType(
    {
        "A10": 24,  # NVIDIA A10 data sheet
        "A10G": 24,  # AWS G5 instances
        "A100": 40,  # NVIDIA A100 data sheet; there is an 80 GB one, asked for by memory
        "A30": 24,  # NVIDIA A30 data sheet
        "A40": 48,  # NVIDIA A40 data sheet
        "B200": 180,  # NVIDIA DGX B200 data sheet: 1,440 GB over 8
        "GB200": 186,  # NVIDIA GB200 NVL72 data sheet: 13.4 TB over 72
        "H100": 80,  # NVIDIA H100 data sheet
        "H200": 141,  # NVIDIA H200 data sheet
        "L4": 24,  # NVIDIA L4 data sheet
        "L40": 48,  # NVIDIA L40 data sheet
        "L40S": 48,  # NVIDIA L40S data sheet
        "MI210": 64,  # AMD Instinct MI210 data sheet
        "MI250X": 128,  # AMD Instinct MI250X data sheet
        "MI300X": 192,  # AMD Instinct MI300X data sheet
        "MI325X": 256,  # AMD Instinct MI325X data sheet
        "P100": 16,  # NVIDIA P100 data sheet
        "P4": 8,  # NVIDIA P4 data sheet
        "T4": 16,  # NVIDIA T4 data sheet
        "V100": 16,  # NVIDIA V100 data sheet; there is a 32 GB one
        "V100M16": 16,  # openb trace: V100 with 16 GB
        "V100M32": 32,  # openb trace: V100 with 32 GB
        "v2": 16,  # a chip of Google TPU v2: 8 GiB for each of two cores (cloud.google.com/tpu/docs/v2)
        "v3": 32,  # a chip of TPU v3 (cloud.google.com/tpu/docs/v3)
        "v4": 32,  # cloud.google.com/tpu/docs/v4
        "v5e": 16,  # cloud.google.com/tpu/docs/v5e
        "v5p": 95,  # cloud.google.com/tpu/docs/v5p
        "v6e": 32,  # cloud.google.com/tpu/docs/v6e
        "7x": 192,  # cloud.google.com/tpu/docs/tpu7x
    }
)

_BRANDS = re.compile(r"^(?:NVIDIA|Tesla|GeForce|Quadro|AMD|Instinct|Graphics Device)\b[\s-]*", re.IGNORECASE)
# What follows the model and does not change what a task can run on it: form factor, bus, memory size, memory kind.
_TAIL = re.compile(
    r"(?:[\s-]+(?:SXM\d*|AC|PCIE|NVL|HBM\d\w?|OAM|\d+\s?GB|LHR|Generation|GPU|(?:Server|Workstation) Edition|MIG\b.*))+$",
    re.IGNORECASE,
)


def model_of_name(name: str) -> str:
    """ "Tesla V100-SXM2-16GB" → "V100", "NVIDIA GeForce RTX 4090" → "RTX-4090". A name of only a brand stays as it is, without spaces."""
    rest = name.strip()
    while (shorter := _BRANDS.sub("", rest)) != rest and shorter:
        rest = shorter
    rest = _TAIL.sub("", rest).strip() or name.strip()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", rest).strip("-") or "unknown"


def default_memory_bytes(model: str) -> int | None:
    """The memory of one device of this model; None when the table does not know it."""
    gib = _MEMORY_GIB.get(model)
    return None if gib is None else int(gib * GIB)
