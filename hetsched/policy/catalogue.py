"""Figures of accelerators by model: what the cost model and the energy term count with where a device says nothing itself.

`tflops`: dense half precision (fp16 or bf16) with tensor cores where there are any; `tops`: dense int8; `bandwidth_gbs`: device memory, GB/s;
`watts`: thermal design power of one device as it is scheduled. None = not published, or not found: better unknown than guessed.
`DeviceSpec.tflops`, `.tops`, `.bandwidth` and `.watts` go before the table.

A model is looked up by its words: `NVIDIA A100-SXM4-80GB` finds `a100 sxm4 80gb` before `a100`. To add one: a row with its source.
"""

from __future__ import annotations

import functools
import re

import msgspec

from hetsched.model import DeviceSpec


class Figures(msgspec.Struct, frozen=True):
    """One row. `names`: spellings in lower-case words, the first for people."""

    names: tuple[str, ...]
    tflops: float | None
    tops: float | None
    bandwidth_gbs: float | None
    watts: float | None
    source: str


UNKNOWN = Figures(("unknown",), None, None, None, None, "no row of the catalogue matches")

CATALOGUE: tuple[Figures, ...] = (
    # NVIDIA
    Figures(("k80",), 4.1, None, 240, 150, "NVIDIA Tesla K80 board specification BD-07317: half a board, fp32"),
    Figures(("p4",), 5.5, 22, 192, 75, "NVIDIA Tesla P4 datasheet; fp32, no fast half precision"),
    Figures(("p100",), 18.7, None, 732, 250, "NVIDIA Tesla P100 PCIe datasheet"),
    Figures(("p100 sxm2",), 21.2, None, 732, 300, "NVIDIA Tesla P100 SXM2 datasheet"),
    Figures(
        ("v100", "v100m16", "v100m32", "v100 sxm2"), 125, None, 900, 300, "NVIDIA V100 SXM2 datasheet; openb names"
    ),
    Figures(("v100 pcie",), 112, None, 900, 250, "NVIDIA V100 PCIe datasheet"),
    Figures(("t4",), 65, 130, 320, 70, "NVIDIA T4 datasheet"),
    Figures(("a10", "g2"), 125, 250, 600, 150, "NVIDIA A10 datasheet; G2 is the openb trace's name for its size"),
    Figures(("a10g",), 70, 140, 600, 300, "NVIDIA A10G (AWS G5) datasheet; power limit as nvidia-smi reports it"),
    Figures(("a30",), 165, 330, 933, 165, "NVIDIA A30 datasheet"),
    Figures(("a40",), 149.7, 299.3, 696, 300, "NVIDIA A40 datasheet"),
    Figures(("a100", "a100 sxm4", "g3"), 312, 624, 1555, 400, "NVIDIA A100 SXM4 40GB datasheet; G3: openb, likewise"),
    Figures(("a100 80gb", "a100 sxm4 80gb", "a800"), 312, 624, 2039, 400, "NVIDIA A100 SXM4 80GB datasheet"),
    Figures(("a100 pcie", "a100 pcie 40gb"), 312, 624, 1555, 250, "NVIDIA A100 PCIe 40GB datasheet"),
    Figures(("a100 80gb pcie",), 312, 624, 1935, 300, "NVIDIA A100 PCIe 80GB datasheet"),
    Figures(("l4",), 121, 242.5, 300, 72, "NVIDIA L4 datasheet; half of its sparse figures"),
    Figures(("l40",), 181, 362, 864, 300, "NVIDIA L40 datasheet"),
    Figures(("l40s",), 362, 733, 864, 350, "NVIDIA L40S datasheet"),
    Figures(("h20",), 148, 296, 4000, 400, "NVIDIA H20 figures as published by resellers, 2024"),
    Figures(("h100", "h800", "h100 80gb hbm3"), 989, 1979, 3350, 700, "NVIDIA H100 SXM5 datasheet"),
    Figures(("h100 pcie",), 756, 1513, 2000, 350, "NVIDIA H100 PCIe datasheet"),
    Figures(("h100 nvl",), 835, 1671, 3938, 400, "NVIDIA H100 NVL datasheet; half of its sparse figures, one board"),
    Figures(("h200",), 989, 1979, 4800, 700, "NVIDIA H200 SXM datasheet"),
    Figures(("gh200",), 989, 1979, 4000, None, "NVIDIA GH200 datasheet; power is of the whole module, so not here"),
    Figures(("b200",), 2250, 4500, 8000, 1000, "NVIDIA DGX B200 datasheet, per device"),
    Figures(("b300",), 2250, None, 8000, None, "NVIDIA DGX B300 datasheet, per device; little int8, power not found"),
    Figures(("gb300",), 2500, None, 8000, 1400, "NVIDIA GB300 NVL72 datasheet, per device; little int8"),
    Figures(("gb200",), 2500, 5000, 8000, 1200, "NVIDIA GB200 NVL72 datasheet, per device"),
    Figures(("rtx 3090",), 71, 284, 936, 350, "NVIDIA GA102 whitepaper, fp16 with fp32 accumulate"),
    Figures(("rtx 4090",), 165, 660, 1008, 450, "NVIDIA Ada whitepaper, fp16 with fp32 accumulate"),
    Figures(("rtx 5090",), 209, 838, 1792, 575, "NVIDIA Blackwell RTX whitepaper, fp16 with fp32 accumulate"),
    # AMD
    Figures(("mi100",), 184.6, 184.6, 1229, 300, "AMD Instinct MI100 data sheet"),
    Figures(("mi210",), 181, 181, 1638, 300, "AMD Instinct MI210 data sheet"),
    Figures(("mi250",), 362, 362, 3277, 560, "AMD Instinct MI250 data sheet, both dies"),
    Figures(("mi250x",), 383, 383, 3277, 560, "AMD Instinct MI250X data sheet, both dies"),
    Figures(("mi300x",), 1307, 2615, 5300, 750, "AMD Instinct MI300X data sheet"),
    Figures(("mi325x",), 1307, 2615, 6000, 1000, "AMD Instinct MI325X data sheet"),
    Figures(("mi355x",), 2500, 5000, 8000, 1400, "AMD Instinct MI355X data sheet"),
    # Google
    Figures(("tpu v2", "v2"), 45, None, 600, None, "Google Cloud documentation, TPU v2, per chip"),
    Figures(("tpu v3", "v3"), 123, None, 900, 262, "Google Cloud documentation, TPU v3; largest measured power"),
    Figures(("tpu v4", "v4"), 275, 275, 1200, 192, "Google Cloud documentation, TPU v4; largest measured power"),
    Figures(("tpu v5e", "v5e", "tpu v5 lite"), 197, 394, 819, None, "Google Cloud documentation, TPU v5e"),
    Figures(("tpu v5p", "v5p"), 459, 918, 2765, None, "Google Cloud documentation, TPU v5p"),
    Figures(("tpu v6e", "v6e", "tpu v6 lite"), 918, 1836, 1638, None, "Google Cloud documentation, TPU v6e"),
    Figures(("tpu7x", "v7x"), 2307, None, 7370, None, "Google Cloud documentation, TPU7x; its fp8 is 4614"),
    # other makers of matrix engines
    Figures(("trainium2",), 667, None, 2900, None, "AWS Neuron documentation, Trainium2, per chip"),
    Figures(("inferentia2",), 190, 380, 820, None, "AWS Neuron documentation, Inferentia2, per chip"),
    Figures(("gaudi2", "hl 225"), 432, None, 2460, 600, "Intel Gaudi 2 white paper; its fp8 is 865"),
    Figures(("gaudi3", "hl 325l"), 1677, None, 3700, 900, "Intel Gaudi 3 white paper, at the clock of shipped boards"),
    Figures(("910a", "ascend910"), 256, 512, 1200, 310, "Huawei Ascend 910, Hot Chips 2019"),
    Figures(
        ("910b", "910b1", "910b2", "910b3"),
        320,
        640,
        None,
        310,
        "press on Ascend 910B, variants differ: a class, not a part",
    ),
    Figures(("310p3", "310p"), 70, 140, 204.8, 72, "Huawei Atlas 300I Pro data sheet, one chip"),
    Figures(("mlu370 x8",), 96, 256, 614.4, 250, "Cambricon MLU370-X8 product page"),
    Figures(("mlu290 m5",), None, 512, 1228, 350, "Cambricon MLU290-M5 product page"),
    # FPGA cards
    Figures(("u50", "xilinx u50"), None, None, 460, 75, "AMD UG1393, HBM configuration; Alveo U50 data sheet DS965"),
    Figures(
        ("u55c", "xilinx u55c"), None, None, 460, 150, "AMD UG1393, HBM configuration; Alveo U55C data sheet DS978"
    ),
    Figures(("u200", "xilinx u200"), None, 18.6, 77, 225, "Alveo U200 and U250 data sheet DS962"),
    Figures(("u250", "xilinx u250"), None, 33.3, 77, 225, "Alveo U200 and U250 data sheet DS962"),
    Figures(("u280", "xilinx u280"), None, 24.5, 460, 225, "Alveo U280 data sheet DS963"),
)

_WORDS = re.compile(r"[a-z0-9]+(?:\.[0-9]+)?")
_BY_NAME = {tuple(_WORDS.findall(name)): row for row in CATALOGUE for name in row.names}


@functools.lru_cache(maxsize=1024)
def figures(model: str | None) -> Figures:
    """The row with the most words in common: all words of a name must stand in the model, in order, next to one another."""
    words = tuple(_WORDS.findall((model or "").lower()))
    for length in range(len(words), 0, -1):
        for first in range(len(words) - length + 1):
            row = _BY_NAME.get(words[first : first + length])
            if row is not None:
                return row
    return UNKNOWN


def tflops(device: DeviceSpec) -> float | None:
    """Dense half precision, TFLOPS."""
    return figures(device.model).tflops if device.tflops is None else device.tflops


def tops(device: DeviceSpec) -> float | None:
    """Dense int8, TOPS; half precision where no int8 is published, which is the least that the engine does."""
    if device.tops is not None:
        return device.tops
    row = figures(device.model)
    return row.tops if row.tops is not None else tflops(device)


def bandwidth_gbs(device: DeviceSpec) -> float | None:
    """Of device memory, GB/s."""
    return figures(device.model).bandwidth_gbs if device.bandwidth is None else device.bandwidth


def watts(device: DeviceSpec) -> float | None:
    """Design power."""
    return figures(device.model).watts if device.watts is None else device.watts
