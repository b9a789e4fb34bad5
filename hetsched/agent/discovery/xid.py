"""NVIDIA's Xid numbers: what the driver says went wrong, and what each means for a device's fitness to take tasks.

Three effects. None: the application's fault, a mere notice, or a number that NVIDIA marks unused. `suspect`: may heal or may be the
first sign; no new work for a while. `failed`: needs a reset, a reboot or a hand. A number beyond the catalogue is suspect: new
drivers bring new numbers, and a pause costs less than a lost training run.

Source of each row: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, of 2025-10-29), the "immediate resolution" quoted in
`source`; where we judge otherwise, the reason follows a semicolon.
"""

from __future__ import annotations

import re

import msgspec

from hetsched.agent.discovery.sysfs import normal_pci
from hetsched.agent.discovery.vendor import FAILED, HEALTHY, SUSPECT, Verdict

FALLEN_OFF_THE_BUS = 79


class XidRule(msgspec.Struct, frozen=True):
    """`effect`: suspect | failed; `name`: the coded word put into a reason."""

    effect: str
    name: str
    source: str


XIDS: dict[int, XidRule] = {
    46: XidRule(FAILED, "gpu_stopped", "RESET_GPU"),
    48: XidRule(FAILED, "ecc_double_bit", "WORKFLOW_XID_48: drain, then reset"),
    54: XidRule(SUSPECT, "power_not_connected", "CHECK_MECHANICALS; it still computes, slowly"),
    62: XidRule(FAILED, "pmu_halt", "RESET_GPU"),
    64: XidRule(FAILED, "row_remap_failed", "RESET_GPU"),
    74: XidRule(SUSPECT, "nvlink", "WORKFLOW_NVLINK_ERR; one link may recover, work inside one GPU is not touched"),
    78: XidRule(SUSPECT, "vgpu_start", "UPDATE_SWFW"),
    79: XidRule(FAILED, "fallen_off_the_bus", "RESTART_BM"),
    92: XidRule(
        SUSPECT, "ecc_single_bit_rate", "IGNORE; a high rate foretells 48, and the investigation goes to support"
    ),
    94: XidRule(SUSPECT, "ecc_contained", "RESTART_APP; contained, but a page waits to be remapped by a reset"),
    95: XidRule(FAILED, "ecc_uncontained", "RESET_GPU"),
    109: XidRule(
        SUSPECT,
        "context_switch_timeout",
        "RESET_GPU; often a kernel that never ends, NVIDIA's own device plugin skips it",
    ),
    110: XidRule(FAILED, "security_fault", "RESET_GPU"),
    119: XidRule(FAILED, "gsp_timeout", "RESET_GPU"),
    120: XidRule(FAILED, "gsp_error", "RESET_GPU"),
    136: XidRule(FAILED, "link_training", "RESET_GPU"),
    140: XidRule(FAILED, "ecc_unrecovered", "RESET_GPU"),
    143: XidRule(FAILED, "gpu_init", "RESET_GPU"),
    **{
        code: XidRule(
            SUSPECT, "nvlink5", "WORKFLOW_NVLINK5_ERR; the number alone does not tell fatal from not: see `Fatal` below"
        )
        for code in range(144, 151)
    },
    151: XidRule(SUSPECT, "key_rotation", "RESTART_VM; only with confidential computing, the device itself is well"),
    155: XidRule(FAILED, "nvlink_software", "RESET_GPU"),
    156: XidRule(
        SUSPECT, "resource_retired", "RESET_GPU; the investigation bucket says IGNORE: it works until the reset"
    ),
    157: XidRule(SUSPECT, "retirement_failed", "IGNORE; the investigation goes to support"),
    158: XidRule(FAILED, "fatal_timeout", "RESET_GPU"),
    159: XidRule(SUSPECT, "chi_non_data", "CHECK_UVM"),
    161: XidRule(SUSPECT, "channel_retirement_failed", "IGNORE; a failed retirement, as 157"),
    167: XidRule(FAILED, "pcie_fatal_timeout", "no bucket given; its name says fatal"),
    168: XidRule(SUSPECT, "less_memory", "no bucket given; a task could be promised memory that is gone"),
    169: XidRule(FAILED, "sec2_halt", "no bucket given; a halted micro-controller, as 62"),
    171: XidRule(FAILED, "dram_uncorrectable", "no bucket given; comes with 48"),
    172: XidRule(FAILED, "sram_uncorrectable", "no bucket given; comes with 48"),
}

# The catalogue ends here. What it holds and the table does not is RESTART_APP (the application's fault), IGNORE, "Unused", or a mere
# notice without a bucket (162 to 166 and 170: power smoothing, confidential links).
LAST_CATALOGUED = 172
RECOVERY_ACTION_CHANGED = (
    154  # a notice about another Xid: its text decides, and the driver's own recovery action (nvml.py)
)


class XidEvent(msgspec.Struct, frozen=True):
    """One trouble told by the driver. `pci` as sysfs spells it, function 0; `instance`: of a MIG partition, None = the whole GPU."""

    pci: str
    code: int
    text: str = ""
    instance: int | None = None


def judge_xid(code: int, text: str = "") -> Verdict:
    """What one Xid means for its device. `text`, where a log line gave it, sharpens the verdict."""
    if code == RECOVERY_ACTION_CHANGED:
        return _judge_recovery(text)
    rule = XIDS.get(code)
    if rule is None:
        return Verdict() if code <= LAST_CATALOGUED else Verdict(SUSPECT, f"xid {code} unknown")
    effect = rule.effect
    if rule.name == "nvlink5" and re.search(r"\bFatal\b", text):
        effect = FAILED
    return Verdict(effect, f"xid {code} {rule.name}")


def _judge_recovery(text: str) -> Verdict:
    """ "… changed from 0x0 (None) to 0x4 (Drain and Reset)": running tasks may end first only where it says drain."""
    action = text.rpartition("(")[2].rstrip(") .").lower() if "(" in text else ""
    if "drain" in action:
        return Verdict(SUSPECT, f"xid 154 recovery: {action}")
    if "reset" in action or "reboot" in action:
        return Verdict(FAILED, f"xid 154 recovery: {action}")
    return Verdict(HEALTHY)


_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
_FALLEN = re.compile(r"NVRM: GPU ([0-9a-fA-F:.]+): GPU has fallen off the bus")
_THE_GPU = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]+)\s*$")


class KernelLog:
    """Turns kernel log lines into Xid events, one line at a time.

    Falling off the bus is also told without a number, in one line or in three ("The NVIDIA GPU …", "(PCI ID: …", "fallen off …");
    both become Xid 79. Lines that only look alike are ignored.
    """

    def __init__(self) -> None:
        self._named: str | None = None
        self._lines_since_named = 0

    def feed(self, line: str) -> XidEvent | None:
        """The event that this line completes, if any."""
        if found := _XID.search(line):
            pci = normal_pci(found[1])
            return XidEvent(pci, int(found[2]), found[3] or "") if pci else None
        if found := _FALLEN.search(line):
            return self._fallen(normal_pci(found[1]))
        if found := _THE_GPU.search(line):
            self._named, self._lines_since_named = normal_pci(found[1]), 0
            return None
        self._lines_since_named += 1
        if "fallen off the bus" in line and self._lines_since_named <= 2:
            named, self._named = self._named, None
            return self._fallen(named)
        return None

    @staticmethod
    def _fallen(pci: str | None) -> XidEvent | None:
        return XidEvent(pci, FALLEN_OFF_THE_BUS, "GPU has fallen off the bus.") if pci else None
