"""The read side of nodes, devices, queues and the whole cluster."""

from __future__ import annotations

from typing import Any

from hetsched import _core
from hetsched.errors import NotFound
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.lifecycle import LIVE_MASK, STATE_OF_CODE, states_mask
from hetsched.scheduler.rendering import amounts_json, settings_json
from hetsched.scheduler.totals import totals
from hetsched.scheduler.uses import is_lending
from hetsched.scheduler.world import World


class ClusterView:
    """Questions about machines and tenants."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.books = world.books
        self.core = world.core

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes, without their devices."""
        return [self._node_row(node) for node in self.books.cluster.by_name.values()]

    def node(self, name: str) -> dict[str, Any]:
        """One node with its devices and tasks. Raises NotFound."""
        node = self.books.cluster.by_name.get(name)
        if node is None:
            raise NotFound(f"no node {name}")
        out = self._node_row(node)
        out["devices"] = self._devices_of(node)
        out["tasks"] = [self.books.id_of(task) for task in self.core.tasks_on(node.slot)]
        return out

    def _node_row(self, node: Node) -> dict[str, Any]:
        cpu_free, memory_free, cpu, memory, allocations = self.core.node_state(node.slot)
        return {
            "name": node.name,
            "state": node.state,
            "cordoned": node.cordoned,
            "draining": node.draining,
            "cpu": cpu / 1000,
            "cpu_free": max(0, cpu_free) / 1000,
            "memory": memory,
            "memory_free": max(0, memory_free),
            "device_count": len(node.spec.devices),
            "running": allocations,
            "labels": node.spec.labels,
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.spec.taints],
            "volumes": list(node.spec.volumes),
            **({"limits": node.spec.limits} if node.spec.limits else {}),
            **self._lent(node),
        }

    def _lent(self, node: Node) -> dict[str, Any]:
        """What is held and not used, and who stands on it; nothing where nothing is lent."""
        if not is_lending(self.world.config):
            return {}
        names = ("best_effort", "idle", "lendable", "lent")
        (cpu, memory) = (dict(zip(names, amounts, strict=True)) for amounts in self.core.lent(node.slot))
        return {"overcommit": {"cpu": {name: milli / 1000 for name, milli in cpu.items()}, "memory": memory}}

    def lent(self) -> dict[str, float]:
        """What nodes promise beyond their own, over what they all have; nothing where nothing is ever lent."""
        if not is_lending(self.world.config):
            return {}
        beyond = [[amounts[3] for amounts in self.core.lent(slot)] for slot in self.books.cluster.by_slot]
        capacity = [max(1, amount) for amount, _ in self.core.totals()[:2]]
        return {name: sum(one[at] for one in beyond) / capacity[at] for at, name in enumerate(("cpu", "memory"))}

    def devices(self) -> list[dict[str, Any]]:
        """All devices of all nodes."""
        return [row for node in self.books.cluster.by_name.values() for row in self._devices_of(node)]

    def _devices_of(self, node: Node) -> list[dict[str, Any]]:
        holders = self._holders(node)
        rows = []
        for index, spec in enumerate(node.spec.devices):
            used_milli, used_bytes, usable = self.core.device_state(node.slot, index)
            rows.append(
                {
                    "node": node.name,
                    "id": spec.id,
                    "kind": spec.kind,
                    "model": spec.model,
                    "health": node.health[index],
                    "health_reason": node.health_reason[index],
                    "usable": usable and node.is_open,
                    "share_used": used_milli,
                    "memory": spec.memory_bytes,
                    "memory_reserved": used_bytes,
                    "numa": spec.numa,
                    "nvlink": spec.nvlink,
                    "pcie": spec.pcie,
                    "uuid": spec.uuid,
                    "tasks": holders.get(spec.id, []),
                }
            )
        return rows

    def _holders(self, node: Node) -> dict[str, list[dict[str, Any]]]:
        holders: dict[str, list[dict[str, Any]]] = {}
        for task in self.core.tasks_on(node.slot):
            live = self.books.attempts.live[task]
            for device, share in live.devices:
                entry = {"task": self.books.id_of(task), "attempt": live.number, "share": share}
                holders.setdefault(device, []).append(entry)
        return holders

    # -- queues and the whole

    def queues(self) -> list[dict[str, Any]]:
        """All queues."""
        waiting, running = self._queue_counts()
        return [self._queue(name, waiting, running) for name in sorted(self.books.queues.slot)]

    def queue(self, name: str) -> dict[str, Any]:
        """One queue: entitlement and use. Raises NotFound."""
        if name not in self.books.queues.slot:
            raise NotFound(f"no queue {name}")
        return self._queue(name, *self._queue_counts())

    def _queue_counts(self) -> tuple[list[int], list[int]]:
        """Tasks that wait and that live, by queue."""
        return self.core.by_queue(states_mask((_core.QUEUED,))), self.core.by_queue(LIVE_MASK)

    def _queue(self, name: str, waiting: list[int], running: list[int]) -> dict[str, Any]:
        slot = self.books.queues.slot[name]
        spec = self.books.queues.spec[name]
        return {
            "name": name,
            "weight": spec.weight,
            "guaranteed": amounts_json(spec.guaranteed),
            "limit": amounts_json(spec.limit),
            "used": self._by_resource(self.core.queue_used(slot)),
            "waiting": waiting[slot],
            "running": running[slot],
        }

    def _by_resource(self, amounts: list[int]) -> dict[str, Any]:
        named = dict(zip(("cpu", "memory", *self.books.kinds.words), amounts, strict=False))
        return amounts_json(named)

    def cluster(self) -> dict[str, Any]:
        """Totals, use, fragmentation per kind, lanes' depth, counts by state."""
        found = totals(self.books)
        counts = self.core.counts()
        nodes = self.books.cluster.by_name.values()
        return {
            "nodes": {"total": len(nodes), "open": sum(node.is_open for node in nodes)},
            "capacity": self._by_resource([total.capacity for total in found]),
            "used": self._by_resource([total.used for total in found]),
            "used_aside": self._by_resource([total.aside for total in found]),
            "fragmentation": {kind: self._fragmentation(i) for i, kind in enumerate(self.books.kinds.words)},
            "lanes": self.lanes(),
            "tasks": {str(state): counts[code] for code, state in STATE_OF_CODE.items()},
            "epoch": self.world.epoch,
            "policy": self.world.config.policy.preset,
            **self.feedback(),
        }

    def feedback(self) -> dict[str, Any]:
        """What the controller sees and has turned; nothing where it is off."""
        feedback = self.books.feedback
        if feedback is None:
            return {}
        error = feedback.error_milli / 1000
        return {"feedback": {"error": error, "judged": feedback.judged, **settings_json(feedback.settings)}}

    def lanes(self) -> dict[str, int]:
        """Waiting tasks per lane."""
        immediate = sum(1 << level for level in self.books.immediate)
        return {
            "immediate": self.core.waiting(immediate),
            "batch": self.core.waiting(0b1111 & ~immediate),
            "backoff": self.core.counts()[_core.BACKOFF],
        }

    def _fragmentation(self, kind: int) -> dict[str, float]:
        fragment, free = self.core.fragmentation(kind)
        return {"ratio": fragment / free if free else 0.0, "fragment": fragment / 1000, "free": free / 1000}
