"""How much power a simulated device draws: idle power always, the rest in proportion to the share in use.

Design powers by model come from the catalogue (policy/catalogue.py, a source a row); a device group's own `watts` goes before them. This is a
first-order model (Barroso and Hölzle, The Case for Energy-Proportional Computing, 2007), good for comparing policies, not for bills.
"""

from __future__ import annotations

from hetsched.model import DeviceSpec
from hetsched.policy import catalogue

IDLE_PART = 0.2
"""Of the design power: what a modern accelerator draws with nothing to do."""

CORE_WATTS = 5.0
"""One busy core of a server processor."""

KIND_WATTS = {"gpu": 250.0, "tpu": 200.0, "fpga": 150.0, "npu": 300.0}
OTHER_WATTS = 100.0


def device_watts(device: DeviceSpec) -> float:
    """Design power of one device, watts: what it says itself, the catalogue's, or a guess by kind."""
    known = catalogue.watts(device)
    return KIND_WATTS.get(device.kind, OTHER_WATTS) if known is None else known
