"""The device ledger, checked from outside while everything moves: what the daemon says is used on every device must be the sum of
what its live attempts hold there, and never more than the device."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hetsched.client import Client

_LIVE = "placed,running,stopping"


class Ledger:
    """`checks`: how many times it was looked at; `compared`: how many of these stood still long enough to compare two answers;
    `faults`: what was wrong, in words."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.checks = 0
        self.compared = 0
        self.faults: list[str] = []
        self.devices: list[dict[str, Any]] = []

    def check(self) -> None:
        """One look. Two answers are compared only where a third shows that nothing changed between them."""
        self.checks += 1
        before = self._read()
        live = list(self._client.tasks(state=_LIVE))
        after = self._read()
        if _holders(before) == _holders(after):
            self.compared += 1
            self._compare(after, live)

    def all_free(self) -> bool:
        """Whether no device holds anything."""
        return not any(device["share_used"] for device in self._read())

    def _read(self) -> list[dict[str, Any]]:
        """One answer is of one moment: within it everything must agree."""
        self.devices = self._client.devices()["devices"]
        for device in self.devices:
            held = sum(holder["share"] for holder in device["tasks"])
            name = f"{device['node']}/{device['id']}"
            if held != device["share_used"]:
                self.faults.append(f"{name}: its attempts hold {held}, the ledger says {device['share_used']}")
            if held > 1000:
                self.faults.append(f"{name}: {held} thousandths are given away")
        return self.devices

    def _compare(self, devices: list[dict[str, Any]], live: list[dict[str, Any]]) -> None:
        held: Counter[tuple[str, str]] = Counter()
        for task in live:
            placement = task["placement"] or {"node": "", "devices": ()}
            for device in placement["devices"]:
                held[placement["node"], device["id"]] += device["share"]
        used = {(d["node"], d["id"]): d["share_used"] for d in devices if d["share_used"]}
        if dict(held) != used:
            self.faults.append(f"the tasks hold {dict(held)}, the devices say {used}")


def _holders(devices: list[dict[str, Any]]) -> set[tuple[str, str, str, int]]:
    return {(d["node"], d["id"], holder["task"], holder["attempt"]) for d in devices for holder in d["tasks"]}
