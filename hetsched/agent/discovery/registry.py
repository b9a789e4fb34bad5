"""Which vendors this agent asks: the one place where they are listed. (Adding one: see the checklist in `vendor.py`.)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hetsched.agent.discovery.amd import Amd, amd_present
from hetsched.agent.discovery.nvidia import Nvidia, nvidia_present, open_nvidia
from hetsched.agent.discovery.tpu import Tpu, tpu_present
from hetsched.agent.discovery.tpu_info import open_tpu_info
from hetsched.agent.discovery.vendor import Vendor
from hetsched.agent.fake import STEERING_FILE, FakeProfile, FakeVendor

# Name → (is it on this machine?, how to open it). Looking must be cheap and must load no driver.
VENDORS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], Vendor]]] = {
    "nvidia": (nvidia_present, lambda root: Nvidia(open_nvidia, root)),
    "amd": (amd_present, Amd),
    "tpu": (tpu_present, lambda root: Tpu(root, open_tpu_info())),
}


def open_vendors(fake: FakeProfile | None = None, data_dir: Path | None = None, root: Path = Path("/")) -> list[Vendor]:
    """The vendors whose devices are here; with `--fake` only the pretended ones, steered from `data_dir`."""
    if fake is not None:
        return [FakeVendor(fake, None if data_dir is None else data_dir / STEERING_FILE)]
    return [make(root) for present, make in VENDORS.values() if present(root)]
