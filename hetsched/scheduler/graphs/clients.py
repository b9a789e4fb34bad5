"""What clients ask of graphs, other than to be shown one: take it, cancel it."""

from __future__ import annotations

from hetsched.errors import Conflict, NotFound, Problem, TooBusy
from hetsched.model.graph import Graph
from hetsched.scheduler.graphs.sites import sort_of
from hetsched.scheduler.graphs.state import digest_of, encode
from hetsched.scheduler.ids import new_id
from hetsched.scheduler.messages import CancelGraph, SubmitGraph
from hetsched.scheduler.room import Room
from hetsched.scheduler.words import Graphed
from hetsched.scheduler.world import World


class GraphClients:
    """Handlers of SubmitGraph and CancelGraph."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.graphs = world.books.graphs

    def on_submit(self, asked: SubmitGraph) -> None:
        body = encode(asked.graph) if asked.body is None else asked.body
        ident = asked.graph.id or self._new_id()
        known = self.graphs.by_id.get(ident)
        if known is None:
            fault = self._fault(asked.graph)
            if fault is not None:
                self.world.refuse(asked, fault)
                return
            self.graphs.heard = body, asked.graph
            self.world.books.say(Graphed(ident, self.world.now_ns, body))
            self.world.audit(asked, "submit-graph", ident)
            self.world.emit_named("graph_accepted", None, graph=ident, operators=len(asked.graph.operators))
        elif known.digest != digest_of(body):
            self.world.refuse(asked, Problem.at("/id", f"{ident} is taken by another body", code="conflict"))
            return
        course = self.graphs.by_id[ident]
        self.world.reply(asked, {"id": ident, "state": course.state, "operators": len(course.parts)})

    def _new_id(self) -> str:
        while True:
            ident = new_id(self.world.now_ns, self.world.books.id_seq)
            self.world.books.id_seq += 1
            if ident not in self.graphs.by_id:
                return ident

    def _fault(self, graph: Graph) -> Problem | TooBusy | None:
        """Why it cannot be taken."""
        if len(self.graphs.by_id) >= self.graphs.limit and len(self.graphs.open()) >= self.graphs.limit:
            return TooBusy(f"{self.graphs.limit} graphs are under way, as many as may be (limits.graphs)")
        room, seen = Room(self.world.books), set()
        for at, operator in enumerate(graph.operators):
            sort = sort_of(self.world.books, operator)
            if sort in seen:
                continue
            seen.add(sort)
            try:
                for task in operator.tasks:
                    room.take(task)
            except Problem as problem:
                return problem.under(f"/operators/{at}")
        return None

    def on_cancel(self, asked: CancelGraph) -> None:
        course = self.graphs.by_id.get(asked.graph)
        if course is None:
            self.world.refuse(asked, NotFound(f"no graph {asked.graph}"))
        elif course.is_over:
            self.world.refuse(asked, Conflict(f"graph {asked.graph} has ended already ({course.state})"))
        else:
            if not course.is_cancelled:
                self.world.books.say(Graphed(course.id, self.world.now_ns, is_cancelled=True))
                self.world.audit(asked, "cancel-graph", course.id)
            self.world.reply(asked, {"id": course.id, "state": course.state})
