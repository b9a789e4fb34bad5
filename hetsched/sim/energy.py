"""How much power a simulated device draws: idle power always, the rest in proportion to the share in use.

Thermal design powers by model, watts, from the vendors' data sheets; a device group's own `watts` goes before them. This is a
first-order model (Barroso and Hölzle, The Case for Energy-Proportional Computing, 2007), good for comparing policies, not for bills.
"""

from __future__ import annotations

from hetsched.model import DeviceSpec

IDLE_PART = 0.2
"""Of the design power: what a modern accelerator draws with nothing to do."""

CORE_WATTS = 5.0
"""One busy core of a server processor."""

KIND_WATTS = {"gpu": 250.0, "tpu": 200.0, "fpga": 150.0, "npu": 300.0}
OTHER_WATTS = 100.0

MODEL_WATTS = {
    "T4": 70.0,
    "P4": 75.0,
    "P100": 250.0,
    "V100": 300.0,
    "V100M16": 300.0,
    "V100M32": 300.0,
    "A10": 150.0,
    "G2": 150.0,
    "A30": 165.0,
    "A100": 400.0,
    "G3": 400.0,
    "L4": 72.0,
    "L40S": 350.0,
    "H100": 700.0,
    "H200": 700.0,
    "B200": 1000.0,
    "MI250X": 560.0,
    "MI300X": 750.0,
    "Ascend910": 310.0,
    "v4": 192.0,
    "v5e": 170.0,
    "v5p": 350.0,
    "U280": 225.0,
}
"""G2 and G3 are the openb trace's names for parts of the size of an A10 and an A100."""


def device_watts(device: DeviceSpec) -> float:
    """Design power of one device, watts."""
    if device.watts is not None:
        return device.watts
    return MODEL_WATTS.get(device.model or "", KIND_WATTS.get(device.kind, OTHER_WATTS))
