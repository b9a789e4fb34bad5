"""Several cells on streams that lose, double and delay, with leaders that die at any point: real schedulers, everything else pretended.

A cell's journal is a list of frames; what was appended is there, whoever dies. An inbox is a list of entries whose places grow. Each `act` of
a cell is one step of its leader: hear what lies in its inbox, decide, append, and only then let out letters, replies and orders; a crash may
come between any two of these, and the next leader is restored from the frames alone.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hetsched import wire
from hetsched.config import Config, from_mapping
from hetsched.errors import HetschedError
from hetsched.model import parse_node, parse_submission
from hetsched.scheduler import Scheduler, Turn
from hetsched.scheduler import messages as m
from hetsched.scheduler.cells import digest as digests
from hetsched.scheduler.cells.digest import Digest
from hetsched.scheduler.cells.letters import Delivered, Letter, Parcel, decode, encode
from tests.scheduler.build import SECOND

RUN_S = 5


class Inbox:
    """A stream: entries in order of their places. What is said to be lost is lost with the server's memory."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str, bytes]] = []
        self._last = 0

    def put(self, sender: str, data: bytes) -> None:
        self._last += 1
        self.entries.append((self._last, sender, data))

    def after(self, place: str, count: int) -> list[Delivered]:
        at = int(place.partition("-")[0])
        return [Delivered(f"{n}-0", sender, decode(data)) for n, sender, data in self.entries if n > at][:count]


class Cell:
    """One cell with the leader that it has at the moment. `ran`: (task, attempt) of every order to start that left."""

    def __init__(self, name: str, world: World, nodes: list[dict[str, Any]], **config: Any) -> None:
        self.name = name
        self.world = world
        self.config: Config = from_mapping({"store": {"cell": name}, **config})
        self.sender = f"{name}/1"
        self.frames: list[bytes] = []
        self.snapshot: bytes | None = None
        self.nodes = [spec for raw in nodes for spec in parse_node(raw)]
        self.running: dict[str, tuple[str, int, int]] = {}
        self.sequence = 0
        self.epoch = 0
        self.restart()

    def restart(self) -> None:
        """Another leader, which knows what the journal holds."""
        self.epoch += 1
        self.scheduler = Scheduler.restore(self.config, self.snapshot, seed=1)
        for frame in self.frames:
            self.scheduler.apply(frame)
        self.scheduler.resume(self.epoch)
        self.asked: list[m.Input] = [self.world.heard_of_all(), m.Remind(after_ns=0)]
        for spec in self.nodes:
            reports = tuple(
                m.AttemptReport(task=task, attempt=attempt, state="running")
                for task, (node, attempt, _) in self.running.items()
                if node == spec.name
            )
            self.asked.append(m.NodeJoined(node=spec, session=self.epoch, attempts=reports))

    def digest(self) -> Digest:
        self.sequence += 1
        books = self.scheduler.books
        return Digest(
            cell=self.name,
            epoch=self.epoch,
            sequence=self.sequence,
            backlog=digests.backlog_of(books),
            places=digests.places_of(books),
        )

    def act(self) -> None:
        """One turn, or as much of it as the leader lives to see."""
        world = self.world
        crossings = self.scheduler.books.crossings
        letters = world.inboxes[self.name].after(crossings.heard, world.random.randint(1, 4))
        inputs, self.asked = [*self.asked, *self._ends()], []
        if letters:
            inputs.append(m.LettersHeard(letters=tuple(letters)))
        turn = self.scheduler.step(inputs, world.now_ns)
        self.scheduler.core.check()
        if world.hasty:
            for letter in turn.letters:
                world.post(self, letter)
        if world.chance("before the append"):
            self.restart()
            return
        if turn.facts:
            self.frames.append(turn.facts)
        if world.chance("after the append"):
            self.restart()
            return
        self._answer(turn)
        for letter in turn.letters:
            if world.chance("between two letters"):
                self.restart()
                return
            world.post(self, letter)
        if world.random.random() < 0.05:
            self.snapshot, self.frames = self.scheduler.snapshot(), []

    def submit(self, body: Any) -> None:
        """A client asks; it is told, and remembers, only if the turn lives."""
        self.world.ticket += 1
        ids = [one["id"] for one in body] if isinstance(body, list) else [body["id"]]
        self.world.waiting[self.world.ticket] = ids
        self.asked.append(m.Submit(ticket=self.world.ticket, submission=parse_submission(body), actor="client"))

    def cancel(self, ident: str) -> None:
        self.world.ticket += 1
        self.world.cancels[self.world.ticket] = ident
        self.asked.append(m.Cancel(ticket=self.world.ticket, ids=(ident,), actor="client"))

    def _answer(self, turn: Turn) -> None:
        """Orders first: one to start that was due before somebody cancelled, in the same turn, is followed by one to stop."""
        for order in turn.orders:
            if isinstance(order.message, wire.Start):
                start = order.message
                if self.running.get(start.task, ("", 0, 0))[1] != start.attempt:
                    self.world.started(self.name, start.task)
                    self.running[start.task] = (order.node, start.attempt, self.world.now_ns + RUN_S * SECOND)
                    self.asked.append(m.AttemptStarted(node=order.node, task=start.task, attempt=start.attempt))
            elif isinstance(order.message, wire.Stop) and order.message.task in self.running:
                node, attempt, _ = self.running[order.message.task]
                self.running[order.message.task] = (node, attempt, 0)
            elif isinstance(order.message, wire.Settled):
                self.running.pop(order.message.task, None)
        for reply in turn.replies:
            if isinstance(reply.value, HetschedError):
                continue
            if reply.ticket in self.world.waiting:
                self.world.acknowledged.update(ident for ident in reply.value.ids if ident is not None)
            elif reply.ticket in self.world.cancels:
                self.world.cancelled.add((self.name, self.world.cancels[reply.ticket]))

    def _ends(self) -> list[m.Input]:
        return [
            m.AttemptEnded(node=node, task=task, attempt=attempt, succeeded=True)
            for task, (node, attempt, until_ns) in self.running.items()
            if until_ns <= self.world.now_ns
        ]


class World:
    """`faults`: how likely each kind of mischief is. `where`: by task, the cells in which it was ever started; `parcels`: those that it was in.
    `hasty`: letters leave before the turn is durable, which is a mutant's way."""

    hasty = False

    def __init__(self, seed: int, faults: float) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.now_ns = 1_000 * SECOND
        self.ticket = 0
        self.waiting: dict[int, list[str]] = {}
        self.cancels: dict[int, str] = {}
        self.acknowledged: set[str] = set()
        self.cancelled: set[tuple[str, str]] = set()
        self.where: dict[str, Counter[str]] = {}
        self.happened = Counter[str]()
        self.inboxes: dict[str, Inbox] = {}
        self.cells: dict[str, Cell] = {}
        self.registry: dict[str, Digest] = {}
        self.parcels: dict[str, set[tuple[str, str, int]]] = {}
        self._late: list[tuple[str, str, bytes]] = []

    def add(self, name: str, nodes: list[dict[str, Any]], **config: Any) -> Cell:
        self.inboxes[name] = Inbox()
        self.cells[name] = Cell(name, self, nodes, **config)
        return self.cells[name]

    def chance(self, what: str) -> bool:
        if self.random.random() >= self.faults:
            return False
        self.happened[what] += 1
        return True

    def post(self, cell: Cell, letter: Letter) -> None:
        """Into the other's inbox, or not, or twice, or later; all are one and the same letter."""
        entry = (letter.to, cell.sender, encode(letter.body))
        if isinstance(letter.body, Parcel):
            for task in cell.scheduler.books.crossings.unpack(letter.body.tasks):
                self.parcels.setdefault(str(task.id), set()).add((cell.sender, letter.to, letter.body.number))
        if self.chance("a letter is lost"):
            return
        if self.chance("a letter is late"):
            self._late.append(entry)
            return
        self._put(entry)
        if self.chance("a letter is there twice"):
            self._put(entry)
            if self.chance("and once more, later"):
                self._late.append(entry)

    def _put(self, entry: tuple[str, str, bytes]) -> None:
        to, sender, data = entry
        self.inboxes[to].put(sender, data)

    def started(self, cell: str, task: str) -> None:
        assert (cell, task) not in self.cancelled, f"{cell} starts {task}, which it had cancelled"
        self.where.setdefault(task, Counter())[cell] += 1

    def tick(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)
        if self._late and self.random.random() < 0.3:
            self._put(self._late.pop(self.random.randrange(len(self._late))))
        if self.chance("the streams forget"):
            inbox = self.random.choice(list(self.inboxes.values()))
            inbox.entries = inbox.entries[: self.random.randint(0, len(inbox.entries))]
        for cell in self.random.sample(list(self.cells.values()), len(self.cells)):
            if self.chance("a leader dies"):
                cell.restart()
            if self.random.random() < 0.5:
                self.registry[cell.name] = cell.digest()
            if self.random.random() < 0.5:
                cell.asked.append(self.heard_of_all())
            if self.random.random() < 0.2:
                cell.asked.append(m.Remind(after_ns=SECOND))
            cell.act()

    def heard_of_all(self) -> m.DigestsHeard:
        silent = frozenset(name for name in self.registry if self.chance("a cell is thought silent"))
        return m.DigestsHeard(digests=tuple(self.registry.values()), silent=silent)

    # -- what has to be so

    def on_their_way(self) -> list[tuple[Cell, str]]:
        """Tasks that were sent and not answered, with their homes."""
        return [
            (cell, ident)
            for cell in self.cells.values()
            for ident, away in cell.scheduler.books.crossings.away.items()
            if away.number and ident in self.acknowledged
        ]

    def homes(self, task: str) -> list[str]:
        """Cells that have the task."""
        return [name for name in self.cells if self.has(name, task)]

    def has(self, name: str, task: str) -> bool:
        try:
            return "reason" not in (found := self.cells[name].scheduler.view.task(task)) or found["reason"] != "in_cell"
        except HetschedError:
            return False

    def check(self) -> None:
        """At any moment: nobody has it twice."""
        for task in self.acknowledged:
            having = self.homes(task)
            assert len(having) <= 1, f"{task} is in {having}"
        for task, parcels in self.parcels.items():
            assert len(parcels) == 1, f"{task} was sent in {parcels}"
        for task, cells in self.where.items():
            assert len(cells) == 1, f"{task} was started in {dict(cells)}"

    def check_end(self) -> None:
        """At rest: each is in one cell, and has ended."""
        self.check()
        for task in sorted(self.acknowledged):
            having = self.homes(task)
            assert len(having) == 1, f"{task} is lost"
            state = self.cells[having[0]].scheduler.view.task(task)["state"]
            assert state in ("succeeded", "cancelled"), f"{task} is {state} in {having[0]}"
            if any(ident == task for _, ident in self.cancelled) and task not in self.where:
                assert state == "cancelled", f"{task} was cancelled"
        for cell in self.cells.values():
            assert not cell.scheduler.books.crossings.open, f"{cell.name} waits for answers"
            again = Scheduler.restore(cell.config, cell.snapshot, seed=1)
            for frame in cell.frames:
                again.apply(frame)
            assert again.digest() == cell.scheduler.digest(), f"{cell.name}'s journal is another state"
