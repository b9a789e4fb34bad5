"""The rules of placing, written down a second time: slow, in plain Python, from the contract and not from the core.

`judge(before, facts)` replays one decide() on a snapshot and raises where a placement or a claim breaks a rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hetsched import _core
from hetsched._core import Core

Fact = tuple[Any, ...]
MINUTE_NS = 60 * 10**9


@dataclass
class Device:
    kind: int
    model: int
    memory: int
    numa: int
    nvlink: int
    pcie: int = -1
    usable: bool = True


@dataclass
class Node:
    cpu: int
    memory: int
    devices: list[Device]
    is_open: bool = True
    domain: int = -1


LEVELS = ("", "numa", "nvlink", "pcie")  # of a board, by code


@dataclass
class Shape:
    cpu: int
    memory: int
    asks: list[tuple[Any, ...]]
    same: int
    is_wish: bool = False
    levels: dict[int, int] = field(default_factory=dict)

    def amounts(self) -> dict[int, int]:
        return {0: self.cpu, 1: self.memory, **{2 + ask[0]: ask[1] * 1000 + ask[2] * ask[3] for ask in self.asks}}

    def device_milli(self) -> int:
        return sum(ask[1] * 1000 + ask[2] * ask[3] for ask in self.asks)


@dataclass
class Book:
    """What was told to the core about the cluster."""

    nodes: dict[int, Node] = field(default_factory=dict)
    shapes: dict[int, Shape] = field(default_factory=dict)
    limits: dict[int, dict[int, int]] = field(default_factory=dict)
    guaranteed: dict[int, dict[int, int]] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=lambda: {0: _core.NONE})
    gangs: dict[int, tuple[int, int]] = field(default_factory=dict)  # min_size, column
    left: dict[int, int] = field(default_factory=dict)  # members that succeeded and are forgotten
    evicted_ns: dict[int, list[int]] = field(default_factory=dict)  # by sequence: when it was told to go
    expected_ns: dict[int, int] = field(default_factory=dict)  # by template
    shaken: set[int] = field(default_factory=set)  # sequences: the next start is protected, or was

    def evicted(self, row: _core.TaskRow, now_ns: int) -> None:
        """The end of an attempt that had to go."""
        told_ns = row.changed_ns if row.state == _core.STOPPING else now_ns
        before = self.evicted_ns.setdefault(row.sequence, [])
        (self.shaken.add if any(told_ns - at <= 600 * 10**9 for at in before) else self.shaken.discard)(row.sequence)
        before.append(told_ns)

    def over(self, row: _core.TaskRow, was_started: bool) -> None:
        """An attempt ended in another way."""
        if was_started:
            self.shaken.discard(row.sequence)

    def node(self, slot: int, cpu: int, memory: int, devices: list[tuple[int, ...]]) -> None:
        self.nodes[slot] = Node(cpu, memory, [Device(*row) for row in devices])

    def shape(
        self, slot: int, cpu: int, memory: int, asks: list[tuple[Any, ...]], same: int, is_wish: bool = False
    ) -> None:
        self.shapes[slot] = Shape(cpu, memory, asks, same, is_wish)

    def queue(self, slot: int, parent: int) -> None:
        self.parents[slot] = parent

    def forget_node(self, node: int) -> None:
        del self.nodes[node]
        for shape in self.shapes.values():
            shape.levels.pop(node, None)

    def above(self, queue: int) -> list[int]:
        found = []
        while queue != _core.NONE:
            found.append(queue)
            queue = self.parents[queue]
        return found


@dataclass
class Holding:
    """What a task has, or claims."""

    task: int
    node: int
    pieces: tuple[tuple[int, int], ...]


class Snapshot:
    """The core before a decision, and what its facts make of it."""

    def __init__(self, core: Core, book: Book, now_ns: int = 0) -> None:
        self.core, self.book = core, book
        self.now_ns = now_ns
        self.rows = {task: core.task(task) for task in core.page(-1, 10**6, (1 << 12) - 1)}
        self.state = {task: row.state for task, row in self.rows.items()}
        self.holdings: dict[int, Holding] = {}
        self.claimed_victims: set[int] = set()
        for task in self.rows:
            placement, claim = core.placement(task), core.claim(task)
            if placement is not None:
                self.holdings[task] = Holding(task, placement.node, placement.devices)
            if claim is not None:
                self.claimed_victims.update(claim[2])
                self.holdings[task] = self.claim_of(task, claim[0])

    def claim_of(self, task: int, node: int) -> Holding:
        return Holding(task, node, CLAIMS[task])

    # ---------------------------------------------------------------- fits

    def fits(self, task: int, node: int, without: frozenset[int] = frozenset()) -> bool:
        """Exact: on this node, beside everybody but `without`, limits included."""
        return self.within_limits(task, without) and self.has_room(task, node, without)

    def has_room(self, task: int, node: int, without: frozenset[int] = frozenset(), together: bool = False) -> bool:
        """`together`: as its shape wishes."""
        shape, place = self.book.shapes[self.rows[task].shape], self.book.nodes.get(node)
        if place is None or not place.is_open or shape.levels.get(node, 1) == 0:
            return False
        others = [
            held
            for held in self.holdings.values()
            if held.node == node and held.task not in without and held.task != task
        ]
        shapes = [self.book.shapes[self.rows[held.task].shape] for held in others]
        if (
            place.cpu - sum(other.cpu for other in shapes) < shape.cpu
            or place.memory - sum(other.memory for other in shapes) < shape.memory
        ):
            return False
        share, memory = self.use_of(node, others)
        if shape.same and shape.asks and not (shape.is_wish and not together):
            by = LEVELS[shape.same]
            islands = {getattr(device, by) for device in place.devices} - {-1}
            return any(
                devices_suffice(shape, place, share, memory, lambda device: getattr(device, by) == island)  # noqa: B023
                for island in islands
            )
        return devices_suffice(shape, place, share, memory, lambda device: True)

    def use_of(self, node: int, others: list[Holding]) -> tuple[dict[int, int], dict[int, int]]:
        share: dict[int, int] = {}
        memory: dict[int, int] = {}
        for held in others:
            asks = {ask[0]: ask for ask in self.book.shapes[self.rows[held.task].shape].asks}
            for index, milli in held.pieces:
                device = self.book.nodes[node].devices[index]
                share[index] = share.get(index, 0) + milli
                memory[index] = memory.get(index, 0) + (device.memory if milli == 1000 else asks[device.kind][4])
        return share, memory

    def within_limits(self, task: int, without: frozenset[int] = frozenset()) -> bool:
        for queue in self.book.above(self.rows[task].queue):
            for resource, most in self.book.limits.get(queue, {}).items():
                used = sum(
                    self.book.shapes[self.rows[held.task].shape].amounts().get(resource, 0)
                    for held in self.holdings.values()
                    if held.task not in without and queue in self.book.above(self.rows[held.task].queue)
                )
                wanted = self.book.shapes[self.rows[task].shape].amounts()
                if resource in wanted and used + wanted[resource] > most:
                    return False
        return True

    # ---------------------------------------------------------------- the reservation

    def run_ns(self, task: int) -> int:
        return self.book.expected_ns.get(self.rows[task].template, 0)

    def end_ns(self, task: int) -> float:
        """When it is expected to be over, from its own placement and estimate; twice the time if it took longer, and so on."""
        run_ns, placement = self.run_ns(task), self.core.placement(task)
        if self.state[task] == _core.STOPPING:
            run_ns, begun_ns = 10**9, self.core.task(task).changed_ns
            while begun_ns + run_ns <= self.now_ns:
                run_ns *= 2
            return begun_ns + run_ns
        if not run_ns:
            return float("inf")
        if placement is None or self.state[task] == _core.QUEUED:
            return self.now_ns + run_ns
        begun_ns = placement.started_ns or placement.placed_ns
        while begun_ns + run_ns <= self.now_ns:
            run_ns *= 2
        return begun_ns + run_ns

    def reserved(self) -> tuple[int, int, set[int]] | None:
        """(head, start, nodes) of the reservation."""
        found = self.core.reservation()
        return None if found is None else (found[0], found[1], {node for _, node in found[2]})

    def is_kept_from(self, task: int, node: int) -> bool:
        """The node is reserved for another that is no less urgent, and the task would not be gone in time."""
        found = self.reserved()
        if found is None or node not in found[2] or task == found[0]:
            return False
        in_time = 0 < self.run_ns(task) <= found[1] - self.now_ns
        return self.rows[found[0]].qos <= self.rows[task].qos and not in_time

    def is_closed_to_claims(self, task: int, node: int) -> bool:
        """Nobody is stopped on a reserved node but for the one it is reserved for, or for a gang that will be gone by then."""
        found = self.reserved()
        if found is None or node not in found[2] or task == found[0]:
            return False
        gang = self.rows[task].gang
        waiting = [one for one, row in self.rows.items() if row.gang == gang and self.state[one] == _core.QUEUED]
        left_ns = found[1] - self.now_ns
        return gang == _core.NONE or not all(0 < self.run_ns(one) <= left_ns for one in waiting)

    # ---------------------------------------------------------------- victims

    def is_damped(self, task: int) -> bool:
        if self.rows[task].sequence not in self.book.shaken:
            return False
        placement = self.core.placement(task)
        started_ns = placement.started_ns if placement is not None else 0
        return started_ns == 0 or self.now_ns - started_ns < 600 * 10**9

    def present(self, gang: int) -> int:
        members = self.core.gang_members(gang)
        here = sum(self.state[member] in (_core.PLACED, _core.RUNNING, _core.SUCCEEDED) for member in members)
        return here + self.book.left.get(gang, 0)

    def stoppable(self, preemptor_qos: int) -> list[int]:
        return [
            task
            for task, row in self.rows.items()
            if row.qos > preemptor_qos
            and row.flags & _core.PREEMPTIBLE
            and row.gang == _core.NONE
            and not self.is_damped(task)
            and self.state[task] in (_core.PLACED, _core.RUNNING)
            and task not in self.claimed_victims
        ]

    def on_node(self, node: int, tasks: frozenset[int]) -> frozenset[int]:
        return frozenset(task for task in tasks if self.holdings[task].node == node)

    def leaving(self, node: int) -> frozenset[int]:
        """Who still holds something here and was told to stop, for a claim or lately."""
        lately = {
            task
            for task, row in self.rows.items()
            if row.state == _core.STOPPING and self.now_ns - row.changed_ns < 60 * 10**9
        }
        return self.on_node(node, frozenset(task for task in self.claimed_victims | lately if task in self.holdings))

    def is_promised(self, node: int) -> bool:
        """Room on it is kept for a claim, of a gang's seat maybe that nobody leaves here for: beside it nobody is stopped who need not
        go if the room was for the task."""
        return any(held.node == node and self.state[held.task] == _core.QUEUED for held in self.holdings.values())

    def will_wait(self, task: int) -> bool:
        """Nobody else is stopped for it: it fits once those have left who leave anyhow; under a limit one claim at a time."""
        leaving = any(self.leaving(node) for node in self.book.nodes)
        return (leaving and not self.within_limits(task)) or any(
            self.fits(task, node, self.leaving(node)) for node in self.book.nodes
        )

    def judge_claim(self, task: int, node: int, victims: tuple[int, ...]) -> None:
        gone = frozenset(victims)
        assert victims and len(gone) == len(victims)
        elsewhere = [anywhere for anywhere in self.book.nodes if not self.is_kept_from(task, anywhere)]
        assert not any(self.fits(task, anywhere) for anywhere in elsewhere), "it evicts although it fits"
        for victim in victims:
            row = self.rows[victim]
            assert row.qos > self.rows[task].qos or self.is_reclaim(task, victim)
            assert row.qos > 0 and row.flags & _core.PREEMPTIBLE
            assert self.state[victim] in (_core.PLACED, _core.RUNNING) and victim not in self.claimed_victims
            assert not self.is_damped(victim), f"{victim} was evicted twice already"
        self.judge_levelling([task], gone)
        assert self.fits(task, node, gone), "it evicts and does not fit"
        for unit in self.units(victims):
            assert not self.fits(task, node, gone - unit), f"{sorted(unit)} need not go"

    def judge_gang_claim(self, claims: list[tuple[int, int, tuple[tuple[int, int], ...], tuple[int, ...]]]) -> None:
        """(task, node, pieces, victims) of every seat: all that it needs, for nobody too much, in one domain."""
        tasks = [task for task, *_ in claims]
        victims = tuple(victim for *_, more in claims for victim in more)
        gang = self.rows[tasks[0]].gang
        least, column = self.book.gangs[gang]
        assert len(claims) == least - self.book.left.get(gang, 0) - self.succeeded(gang) and self.live(gang) == 0
        assert victims and len(set(victims)) == len(victims)
        last = max(tasks, key=lambda task: self.rows[task].qos)
        for victim in victims:
            row = self.rows[victim]
            assert row.qos > self.rows[last].qos or self.is_reclaim(last, victim, self.asked(tasks))
            assert row.qos > 0 and row.flags & _core.PREEMPTIBLE
            assert self.state[victim] in (_core.PLACED, _core.RUNNING) and victim not in self.claimed_victims
            assert not self.is_damped(victim), f"{victim} was evicted twice already"
        places = {self.place_of(node, column) for _, node, *_ in claims}
        assert column < 0 or len(places) == 1
        gone = frozenset(victims)
        self.judge_levelling(tasks, gone)
        held = dict(self.holdings)
        for task, node, pieces, _ in claims:
            assert self.fits(task, node, gone), "it evicts and does not fit"
            judge_pieces(self, task, node, pieces)
            self.holdings[task] = Holding(task, node, pieces)
        self.holdings = held
        shape = self.book.shapes[self.rows[tasks[0]].shape]
        if shape.same or any(ask[2] > 1 for ask in shape.asks):
            return  # the order in which devices are taken counts, and it is the core's own
        assert self.seats(tasks, column, frozenset()) < len(tasks), "it evicts although it fits"
        for unit in self.units(victims):
            assert self.seats(tasks, column, gone - unit) < len(tasks), f"{sorted(unit)} need not go"

    def place_of(self, node: int, column: int) -> int:
        return node if column == 8 else self.book.nodes[node].domain

    def live(self, gang: int) -> int:
        return sum(_core.PLACED <= self.state[member] <= _core.STOPPING for member in self.core.gang_members(gang))

    def succeeded(self, gang: int) -> int:
        return sum(self.state[member] == _core.SUCCEEDED for member in self.core.gang_members(gang))

    def seats(self, tasks: list[int], column: int, gone: frozenset[int]) -> int:
        """Most of these equal tasks that find a seat, in one domain, one after the other on the first node that has one."""
        held, most = dict(self.holdings), 0
        nodes = [node for node in self.book.nodes if not self.is_closed_to_claims(tasks[0], node)]
        for place in sorted({self.place_of(node, column) for node in nodes}) if column >= 0 else [None]:
            seated = 0
            for task in tasks:
                for node in nodes:
                    if (place is None or self.place_of(node, column) == place) and self.fits(task, node, gone):
                        self.holdings[task] = Holding(task, node, self.choose(task, node, gone))
                        seated += 1
                        break
            self.holdings = dict(held)
            most = max(most, seated)
        return most

    def choose(self, task: int, node: int, gone: frozenset[int]) -> tuple[tuple[int, int], ...]:
        """Some devices for a task that fits: whole ones, then the fullest that still takes a part."""
        shape, place = self.book.shapes[self.rows[task].shape], self.book.nodes[node]
        others = [held for held in self.holdings.values() if held.node == node and held.task not in gone]
        share, memory = self.use_of(node, others)
        chosen: list[tuple[int, int]] = []
        for ask in shape.asks:
            _, whole, parts, milli, _, _ = ask
            free, partly = offered(ask, place, share, memory)
            chosen += [(index, 1000) for index in free[:whole]]
            spots = sorted(partly, key=lambda index: -share[index]) + free[whole:]
            chosen += [(index, milli) for index in spots[:parts]]
        return tuple(chosen)

    # ---------------------------------------------------------------- taking back

    def device_use(self, queue: int, without: frozenset[int] = frozenset()) -> dict[int, int]:
        use: dict[int, int] = {}
        for held in self.holdings.values():
            if held.task not in without and queue in self.book.above(self.rows[held.task].queue):
                for resource, amount in self.book.shapes[self.rows[held.task].shape].amounts().items():
                    use[resource] = use.get(resource, 0) + amount
        return use

    def promise(self, queue: int) -> int | None:
        above = self.book.above(queue)
        return next((one for one in above if any(key >= 2 for key in self.book.guaranteed.get(one, {}))), None)

    def lack(self, without: frozenset[int] = frozenset(), incoming: list[int] | None = None) -> int:
        """What queues lack of their guarantees of devices, as parts of what there is of a kind, in 2^-30: cores and devices have no unit
        in common, nor have two kinds of devices."""
        devices = [device for place in self.book.nodes.values() if place.is_open for device in place.devices]
        lacking = 0
        for queue, promised in self.book.guaranteed.items():
            coming = [task for task in incoming or [] if queue in self.book.above(self.rows[task].queue)]
            use, asked = self.device_use(queue, without), self.asked(coming)
            for resource, amount in promised.items():
                capacity = 1000 * sum(device.usable and device.kind == resource - 2 for device in devices)
                if resource >= 2 and capacity:
                    lacks = max(0, amount - use.get(resource, 0) - asked.get(resource, 0))
                    lacking += (lacks << 30) // capacity
        return lacking

    def asked(self, tasks: list[int]) -> dict[int, int]:
        """Of kinds of devices."""
        asked: dict[int, int] = {}
        for task in tasks:
            for key, amount in self.book.shapes[self.rows[task].shape].amounts().items():
                if key >= 2:
                    asked[key] = asked.get(key, 0) + amount
        return asked

    def judge_levelling(self, tasks: list[int], gone: frozenset[int]) -> None:
        """Who takes back from equals leaves queues with less lacking than before."""
        qos = max(self.rows[task].qos for task in tasks)
        if any(self.rows[victim].qos == qos for victim in gone):
            assert self.lack(gone, tasks) < self.lack(), "taking back levels nothing out"

    def is_reclaim(self, by: int, victim: int, asks: dict[int, int] | None = None) -> bool:
        """CONTRACT, section 7, Queues: up to its own guarantee, from a queue above its own, of equal qos. `asks`: of all who start."""
        mine, queue = self.promise(self.rows[by].queue), self.rows[victim].queue
        if mine is None or mine in self.book.above(queue) or self.rows[victim].qos != self.rows[by].qos:
            return False
        use, promised = self.device_use(mine), self.book.guaranteed[mine]
        asks = self.asked([by]) if asks is None else asks
        if any(use.get(key, 0) + amount > promised.get(key, 0) for key, amount in asks.items()):
            return False
        promise = self.promise(queue)
        theirs = queue if promise is None else promise
        held, own = self.device_use(theirs), self.book.guaranteed.get(theirs, {})
        has = {key for key in self.book.shapes[self.rows[victim].shape].amounts() if key >= 2}
        return any(held.get(key, 0) > own.get(key, 0) for key in has & set(asks))

    def units(self, victims: tuple[int, ...]) -> list[frozenset[int]]:
        """Tasks; members of a gang together if the gang goes as a whole."""
        units = []
        for victim in victims:
            gang = self.rows[victim].gang
            running = (
                frozenset(
                    member
                    for member in self.core.gang_members(gang)
                    if self.state[member] in (_core.PLACED, _core.RUNNING)
                )
                if gang != _core.NONE
                else frozenset()
            )
            if gang == _core.NONE:
                units.append(frozenset({victim}))
                continue
            mine = running & frozenset(victims)
            if self.present(gang) - len(mine) < self.book.gangs[gang][0]:
                assert running == mine, "a gang that falls below its least goes as a whole"
                units.append(running)
            else:
                units.append(frozenset({victim}))
        return units


CLAIMS: dict[int, tuple[tuple[int, int], ...]] = {}


def offered(
    ask: Any, node: Node, share: dict[int, int], memory: dict[int, int], allowed: Any = lambda device: True
) -> tuple[list[int], list[int]]:
    """Devices that an ask may take whole, and those that still take a part of it."""
    kind, _, _, milli, each, models = ask
    right = [
        index
        for index, device in enumerate(node.devices)
        if device.kind == kind
        and device.usable
        and allowed(device)
        and (not models or device.model in models)
        and (device.memory < 0 or device.memory >= each)
    ]
    free = [index for index in right if not share.get(index)]
    partly = [
        index
        for index in right
        if share.get(index)
        and share[index] + milli <= 1000
        and (node.devices[index].memory < 0 or memory[index] + each <= node.devices[index].memory)
    ]
    return free, partly


def devices_suffice(shape: Shape, node: Node, share: dict[int, int], memory: dict[int, int], allowed: Any) -> bool:
    for ask in shape.asks:
        _, whole, parts, _, _, _ = ask
        free, partly = offered(ask, node, share, memory, allowed)
        if len(free) < whole or (parts and len(free) - whole + len(partly) < parts):
            return False
    return True


def judge_pieces(snapshot: Snapshot, task: int, node: int, pieces: tuple[tuple[int, int], ...]) -> None:
    shape, place = snapshot.book.shapes[snapshot.rows[task].shape], snapshot.book.nodes[node]
    assert len({index for index, _ in pieces}) == len(pieces)
    for kind, whole, parts, milli, each, models in shape.asks:
        mine = [(index, share) for index, share in pieces if place.devices[index].kind == kind]
        assert sorted(share for _, share in mine) == sorted([1000] * whole + [milli] * parts)
        for index, _ in mine:
            device = place.devices[index]
            assert (
                device.usable
                and (not models or device.model in models)
                and (device.memory < 0 or device.memory >= each)
            )
    assert sum(ask[1] + ask[2] for ask in shape.asks) == len(pieces)
    islands = {getattr(place.devices[index], LEVELS[shape.same]) for index, _ in pieces} if shape.same else set()
    if pieces and shape.same and not shape.is_wish:
        assert len(islands) == 1 and -1 not in islands
    if len(pieces) > 1 and shape.is_wish and (len(islands) > 1 or -1 in islands):
        assert not snapshot.has_room(task, node, together=True), (
            f"task {task} has its wish on node {node} and is not given it"
        )


def judge_rest(snapshot: Snapshot, levels: int, evicts: bool) -> None:
    """Nobody who fits was left waiting; `evicts`: nor anybody who would fit if all were gone who may be stopped singly."""
    for task, row in snapshot.rows.items():
        waits = snapshot.state[task] == _core.QUEUED and task not in snapshot.holdings
        if waits and row.gang == _core.NONE and levels >> row.qos & 1:
            nodes = [
                node
                for node in snapshot.book.nodes
                if not snapshot.is_kept_from(task, node) and not is_for_undecided(snapshot, task, node, levels)
            ]
            if may_be_behind_claim(snapshot, task):
                continue
            assert not any(snapshot.fits(task, node) for node in nodes), f"task {task} fits and waits"
            if evicts and not snapshot.will_wait(task):
                gone = frozenset(snapshot.stoppable(row.qos))
                assert not any(
                    snapshot.fits(task, node, snapshot.on_node(node, gone))
                    for node in nodes
                    if not snapshot.leaving(node)
                    and not snapshot.is_promised(node)
                    and not snapshot.is_closed_to_claims(task, node)
                ), f"task {task} stops nobody and could"


def is_for_undecided(snapshot: Snapshot, task: int, node: int, levels: int) -> bool:
    """Somebody more urgent, whose level was not decided now, could start here: the room may be kept until it is."""
    return any(
        row.qos < snapshot.rows[task].qos
        and not levels >> row.qos & 1
        and snapshot.state[other] == _core.QUEUED
        and other not in snapshot.holdings
        and snapshot.fits(other, node)
        for other, row in snapshot.rows.items()
    )


def may_be_behind_claim(snapshot: Snapshot, task: int) -> bool:
    """One that asks the same in the same queue claims, and may go before it: until that has started it waits, whatever fits."""
    row = snapshot.rows[task]
    return any(
        (there.queue, there.shape, there.gang) == (row.queue, row.shape, _core.NONE)
        and snapshot.state[other] == _core.QUEUED
        and other in snapshot.holdings
        and there.qos <= row.qos
        and not (there.qos == row.qos and surely_ahead(row, there, snapshot.now_ns))
        for other, there in snapshot.rows.items()
    )


def surely_ahead(one: _core.TaskRow, other: _core.TaskRow, now_ns: int) -> bool:
    """`one` goes before `other` however ageing is counted: the minutes of a clock, read at most a minute ago, that began since the submission
    or at most 75 s before it, at most 100; the older one has no less than the younger one, and at most one more where less than 10 s are
    between them."""
    if one.sequence < other.sequence:
        least = most = 0
    elif abs(one.submitted_ns - other.submitted_ns) < 10 * 10**9:
        least, most = 0, 1
    else:
        least = min(100, (now_ns - one.submitted_ns) // MINUTE_NS - 1)
        most = min(100, (now_ns - other.submitted_ns + 75 * 10**9) // MINUTE_NS + 1)
    mine = (-one.priority - least, one.deadline_ns, one.sequence)
    return mine < (-other.priority - most, other.deadline_ns, other.sequence)


def judge_order(snapshot: Snapshot) -> None:
    """Of two tasks of one queue, level and shape the one that surely goes first does not wait, in line or for its victims, while the other
    was placed."""
    single = [task for task, row in snapshot.rows.items() if row.gang == _core.NONE and row.state == _core.QUEUED]
    placed = [task for task in single if snapshot.state[task] == _core.PLACED]
    for task in single:
        row = snapshot.rows[task]
        claims_now = task in snapshot.holdings and not row.flags & _core.CLAIMING
        if snapshot.state[task] != _core.QUEUED or claims_now:
            continue
        for other in placed:
            there = snapshot.rows[other]
            if snapshot.run_ns(other) != snapshot.run_ns(task) and snapshot.reserved() is not None:
                continue  # it was shorter, and so fitted in front of the reservation
            if (row.queue, row.qos, row.shape) == (there.queue, there.qos, there.shape):
                assert not surely_ahead(row, there, snapshot.now_ns), (
                    f"task {other} was placed, task {task} goes before it"
                )


def judge_reservation(snapshot: Snapshot) -> None:
    """Its head waits, fits nowhere, and gets in at its start beside all who are not expected to be over by then."""
    found = snapshot.reserved()
    if found is None or snapshot.rows[found[0]].gang != _core.NONE:
        return
    head, start_ns, (node,) = found
    assert snapshot.state[head] == _core.QUEUED and head not in snapshot.holdings
    assert start_ns > snapshot.now_ns
    gone = frozenset(task for task in snapshot.holdings if snapshot.end_ns(task) <= start_ns)
    assert snapshot.has_room(head, node, gone), f"task {head} cannot start at {start_ns}"


def judge(snapshot: Snapshot, facts: list[Fact], levels: int, evicts: bool) -> None:
    """One decide(): every placement and claim in turn, then that nobody who fits was left."""
    begun: dict[int, int] = {}
    for at, fact in enumerate(facts):
        if fact[0] == _core.F_PLACED:
            _, task, attempt, node, _, pieces = fact
            assert snapshot.state[task] == _core.QUEUED and attempt == snapshot.rows[task].attempt + 1
            assert snapshot.fits(task, node), f"task {task} does not fit on node {node}"
            judge_pieces(snapshot, task, node, pieces)
            gang = snapshot.rows[task].gang
            if gang != _core.NONE:
                begun[gang] = begun.get(gang, 0) + 1
            snapshot.holdings[task] = Holding(task, node, pieces)
            snapshot.state[task] = _core.PLACED
        elif fact[0] == _core.F_CLAIMED:
            _, task, node, _, pieces, victims = fact
            if snapshot.rows[task].gang == _core.NONE:
                snapshot.judge_claim(task, node, victims)
                judge_pieces(snapshot, task, node, pieces)
            elif (
                at == 0
                or facts[at - 1][0] != _core.F_CLAIMED
                or gang_of(snapshot, facts[at - 1]) != gang_of(snapshot, fact)
            ):
                snapshot.judge_gang_claim(seats_claimed(snapshot, facts[at:], snapshot.rows[task].gang))
            CLAIMS[task] = pieces
            snapshot.holdings[task] = Holding(task, node, pieces)
            snapshot.claimed_victims.update(victims)
        elif fact[0] == _core.F_STOPPING:
            snapshot.state[fact[1]] = _core.STOPPING
        else:
            raise AssertionError(f"decide() wrote {fact}")
    judge_gangs(snapshot, begun)
    judge_order(snapshot)
    judge_reservation(snapshot)
    judge_rest(snapshot, levels, evicts)


def judge_gangs(snapshot: Snapshot, begun: dict[int, int]) -> None:
    for gang in begun:
        least, column = snapshot.book.gangs[gang]
        members = snapshot.core.gang_members(gang)
        stopping = sum(snapshot.state[member] == _core.STOPPING for member in members)
        assert snapshot.present(gang) + stopping >= least
        if column >= 0:
            nodes = {
                snapshot.holdings[member].node
                for member in members
                if member in snapshot.holdings and snapshot.state[member] in (_core.PLACED, _core.RUNNING)
            }
            places = nodes if column == 8 else {snapshot.book.nodes[node].domain for node in nodes}
            assert len(places) <= 1, f"gang {gang} is in {places}"  # in none if it had to go again at once


def gang_of(snapshot: Snapshot, fact: Fact) -> int:
    return snapshot.rows[fact[1]].gang


def seats_claimed(snapshot: Snapshot, facts: list[Fact], gang: int) -> list[Any]:
    """The gang's claims at the beginning of these facts."""
    claims = []
    for fact in facts:
        if fact[0] != _core.F_CLAIMED or snapshot.rows[fact[1]].gang != gang:
            break
        _, task, node, _, pieces, victims = fact
        claims.append((task, node, pieces, victims))
    return claims
