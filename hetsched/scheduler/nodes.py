"""What nodes say: they join, fall silent, are lost; their devices sicken; attempts start and end. And what operators do to nodes.

`NodeJoined` is the one code path for first connect, reconnect, daemon restart and failover: the node's list of attempts is held
against the books, and every difference is settled. A node on which something lives that is none of ours any more (it was lost, its
tasks were given away, and it has come back) stays silent until that has ended: whatever it holds is not free, whatever the books say.
"""

from __future__ import annotations

import msgspec

from hetsched import _core, wire
from hetsched._core import NONE
from hetsched.errors import Conflict, NotFound, Problem
from hetsched.scheduler import outcomes, quarantine, words
from hetsched.scheduler.cluster import Node, same_hardware
from hetsched.scheduler.messages import (
    AttemptEnded,
    AttemptReport,
    AttemptsStarted,
    AttemptsSucceeded,
    AttemptStarted,
    DeviceHealth,
    NodeJoined,
    NodeLost,
    NodeSilent,
    OperateNode,
)
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.room import check_node
from hetsched.scheduler.view import View
from hetsched.scheduler.world import World

LOSSES = (quarantine.LEASE, "node_rebooted", "lost_shim")
"""Ends that an agent reports and that are no failing of the task."""


class Nodes:
    """Handlers of everything that is said by or about nodes."""

    def __init__(self, world: World, view: View) -> None:
        self.world = world
        self.cluster = world.books.cluster
        self.view = view
        self._strangers: dict[str, set[tuple[str, int]]] = {}  # node → attempts that live there and count for nothing

    # -- joining

    def on_node_joined(self, asked: NodeJoined) -> None:
        name = asked.node.name
        node = self.cluster.by_name.get(name)
        try:
            check_node(self.world.books, asked.node)
        except Problem as problem:
            self.world.order(name, wire.Refused(problem.detail))
            self.world.refuse(asked, problem)
            return
        self.world.sessions[name] = asked.session
        if node is not None and node.boot_id != asked.node.boot_id:
            self._lose(node, Reason.NODE_LOST)
            self.world.drain()
        self._describe(asked, node)
        self._strangers[name] = set()
        self._mark_up(self.cluster.by_name[name], returning=node is not None)
        self._settle_attempts(name, asked.attempts)
        if self._strangers[name]:
            self._mark(self.cluster.by_name[name], silent=True)
        self.world.capacity_changed = True

    def _describe(self, asked: NodeJoined, node: Node | None) -> None:
        """Write down what the node is, as far as what runs there lets us."""
        if node is None or same_hardware(node.spec, asked.node):
            if node is None or node.spec != asked.node:
                self.world.books.say(words.NodeKnown(asked.node))
        elif not self._is_used(node):
            self.world.books.say(words.NodeKnown(asked.node))
        else:
            self._missing_devices(node, asked)

    def _is_used(self, node: Node) -> bool:
        return bool(self.world.core.tasks_on(node.slot)) or bool(self.world.core.claims_on(node.slot))

    def _missing_devices(self, node: Node, asked: NodeJoined) -> None:
        """Other hardware while attempts live there: what is gone has failed; the rest waits until the node is empty and joins again."""
        present = {device.id for device in asked.node.devices}
        for device in node.spec.devices:
            if device.id not in present:
                self._mark_device(node, device.id, "failed", "the device is gone")

    def _mark_up(self, node: Node, *, returning: bool) -> None:
        was_up = node.up
        if not returning or not node.up or node.silent or node.boot_id != node.spec.boot_id:
            self._mark(node, up=True, silent=False, boot_id=node.spec.boot_id)
        if not returning:
            self.world.emit("node_joined", node=node.name)
        elif not was_up:
            self.world.emit("node_up", node=node.name)

    def _settle_attempts(self, name: str, reports: tuple[AttemptReport, ...]) -> None:
        told = set()
        for report in reports:
            told.add((report.task, report.attempt))
            if report.state == "ended":
                self._over(name, report.task, report.attempt, report.succeeded, report.reason, report.exit_code)
            else:
                self._alive(name, report)
            self.world.drain()  # a list that says one attempt twice meets a settled one the second time
        for task in self.world.core.tasks_on(self.cluster.by_name[name].slot):
            row = self.world.core.task(task)
            if (row.key.decode(), row.attempt) not in told:
                self._not_told(task, row.state)

    def _alive(self, name: str, report: AttemptReport) -> None:
        task = self._current(name, report.task, report.attempt)
        if task == NONE:
            self._strangers[name].add((report.task, report.attempt))
            self.world.release_attempt(name, report.task, report.attempt, Reason.LOST_ATTEMPT)
        elif self.world.core.task(task).state == _core.PLACED:
            self.world.core.started(task, report.attempt)
        elif self.world.core.task(task).state == _core.STOPPING:
            self.world.order_stop(task)

    def _not_told(self, task: int, state: int) -> None:
        """The books say that an attempt lives there; the node has never heard of it, or has forgotten it."""
        if state == _core.PLACED:
            self.world.order_start(task)
        elif state == _core.STOPPING:
            outcomes.stopped(self.world, task, False, "", None)
        else:
            outcomes.lost(self.world, task, Reason.LOST_ATTEMPT)

    # -- silent and lost

    def on_node_silent(self, asked: NodeSilent) -> None:
        node = self.cluster.by_name.get(asked.node)
        self._strangers.pop(asked.node, None)  # who is left there is told when it joins again
        if node is not None and node.up and not node.silent:
            self._mark(node, silent=True)
            self.world.emit("node_silent", node=node.name)

    def on_node_lost(self, asked: NodeLost) -> None:
        node = self.cluster.by_name.get(asked.node)
        if node is not None and node.up:
            self._lose(node, Reason.NODE_LOST)
            self.world.sessions.pop(node.name, None)

    def _lose(self, node: Node, reason: Reason) -> None:
        """Nothing lives there any more: say so, close the node, then give everything back."""
        if node.up:
            self.world.emit("node_down", node=node.name)
            self._mark(node, up=False, silent=False)
        for task in self.world.core.tasks_on(node.slot):
            outcomes.lost(self.world, task, reason)

    # -- attempts

    def on_attempt_started(self, asked: AttemptStarted) -> None:
        task = self._current(asked.node, asked.task, asked.attempt)
        if task != NONE and self.world.core.task(task).state == _core.PLACED:
            self.world.core.started(task, asked.attempt)

    def on_attempt_ended(self, asked: AttemptEnded) -> None:
        self._over(asked.node, asked.task, asked.attempt, asked.succeeded, asked.reason, asked.exit_code)

    def on_attempts_started(self, asked: AttemptsStarted) -> None:
        node = self.cluster.by_name.get(asked.node)
        if node is not None:
            self.world.core.started_all(self._live(node, asked))

    def _live(self, node: Node, asked: AttemptsStarted | AttemptsSucceeded) -> bytes:
        """Slots (uint32) of those that are live attempts there, NONE for the others."""
        tasks = asked.tasks
        return self.world.core.live_on(node.slot, tasks.heads, tasks.which, tasks.numbers, asked.attempts)

    def on_attempts_succeeded(self, asked: AttemptsSucceeded) -> None:
        """At once, but for those that were told to stop meanwhile. An end that is said twice counts once."""
        node = self.cluster.by_name.get(asked.node)
        if node is None:
            return
        core = self.world.core
        others = core.succeeded(self._live(node, asked))
        for task in memoryview(others).cast("I"):
            if core.task(task).state == _core.STOPPING:
                outcomes.stopped(self.world, task, True, "", None)
        if self._strangers.get(asked.node):
            for ident, attempt in wire.attempts_in(asked.tasks, asked.attempts):
                self._stranger_gone(asked.node, ident, attempt)
        self.world.order(asked.node, wire.SettledMany(self.world.session(asked.node), asked.tasks, asked.attempts))

    def _over(self, node: str, ident: str, attempt: int, is_success: bool, text: str, exit_code: int | None) -> None:
        task = self._current(node, ident, attempt)
        if task != NONE:
            if self.world.core.task(task).state == _core.STOPPING:
                outcomes.stopped(self.world, task, is_success, text, exit_code)
            elif is_success:
                outcomes.succeeded(self.world, task)
            elif text in LOSSES:
                self.world.books.say(words.AttemptNoted(task, text, exit_code))
                outcomes.lost(self.world, task, Reason.LOST_ATTEMPT, text)
            else:
                quarantine.could_not_start(self.world, self.cluster.by_name[node], task, text)
                reason = Reason.TIME_LIMIT if text == "time_limit" else Reason.FAILED
                outcomes.failed(self.world, task, text or "failed", exit_code, reason)
        self._stranger_gone(node, ident, attempt)
        self.world.settled(node, ident, attempt)

    def _stranger_gone(self, name: str, ident: str, attempt: int) -> None:
        strangers = self._strangers.get(name)
        if strangers and (ident, attempt) in strangers:
            strangers.remove((ident, attempt))
            if not strangers:
                self._mark(self.cluster.by_name[name], silent=False)

    def _current(self, node: str, ident: str, attempt: int) -> int:
        """Slot of the task if this attempt is its live one on this node, else NONE: late and foreign reports count for nothing."""
        task = self.world.core.find(ident.encode())
        if task == NONE:
            return NONE
        live = self.world.books.attempts.live.get(task)
        if live is None or live.number != attempt or live.node != node:
            return NONE
        return task

    # -- devices

    def on_device_health(self, asked: DeviceHealth) -> None:
        node = self.cluster.by_name.get(asked.node)
        if node is None or node.index_of(asked.device) < 0:
            self.world.refuse(asked, NotFound(f"no device {asked.device} on {asked.node}"))
            return
        self._mark_device(node, asked.device, asked.health, asked.reason)

    def _mark_device(self, node: Node, device: str, health: str, reason: str) -> None:
        index = node.index_of(device)
        if node.health[index] == health:
            return
        self._give_up_claims(node)
        self.world.books.say(words.DeviceMarked(node.name, device, health, reason))
        data = {"node": node.name, "device": device, "health": health, "reason": reason}
        self.world.emit("device", None, None, **{key: value for key, value in data.items() if value})
        self.world.capacity_changed = True
        if health == "failed":
            self._evacuate(node, index)

    def _evacuate(self, node: Node, index: int) -> None:
        """Nobody stays on a failed device."""
        for task in self.world.core.tasks_on(node.slot):
            placement = self.world.core.placement(task)
            if placement is None or all(device != index for device, _ in placement.devices):
                continue
            if self.world.core.task(task).state != _core.STOPPING:
                self.world.core.stop(task, Reason.DEVICE_FAILED)

    # -- the operator's hand

    def on_operate_node(self, asked: OperateNode) -> None:
        node = self.cluster.by_name.get(asked.node)
        if node is None:
            self.world.refuse(asked, NotFound(f"no node {asked.node}"))
            return
        if asked.verb == "uncordon":
            self._mark(node, cordoned=False, draining=False)
        elif asked.verb == "cordon":
            self._mark(node, cordoned=True)
        elif asked.verb == "drain":
            self._mark(node, draining=True)
        else:
            self.world.refuse(asked, Conflict(f"there is no verb {asked.verb} for nodes"))
            return
        self.world.emit(f"node_{asked.verb}", node=node.name)
        self.world.audit(asked, asked.verb, node.name)
        self.world.capacity_changed = True
        self.world.reply(asked, self.view.node(node.name))

    def _mark(self, node: Node, **changes: bool | str) -> None:
        now = words.NodeMarked(node.name, node.up, node.silent, node.cordoned, node.draining, node.boot_id)
        word = msgspec.structs.replace(now, **changes)
        if not (word.up and not (word.silent or word.cordoned or word.draining)):
            self._give_up_claims(node)
        self.world.books.say(word)
        self.world.capacity_changed = True

    def _give_up_claims(self, node: Node) -> None:
        """What was claimed here is claimed anew where it is possible."""
        for task in self.world.core.claims_on(node.slot):
            if self.world.core.task(task).flags & _core.CLAIMING:  # with one of a gang all are given up
                self.world.core.unclaim(task)
