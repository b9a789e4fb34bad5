"""Graphs of operators: submitted, shown, cancelled."""

from __future__ import annotations

from aiohttp import web

from hetsched.api.call import Call, aside
from hetsched.api.known import forbidden
from hetsched.errors import Forbidden
from hetsched.model.read_graph import parse_graph
from hetsched.scheduler.graphs.state import encode
from hetsched.scheduler.messages import CancelGraph, SubmitGraph


async def submit(call: Call) -> web.Response:
    """Accept a graph; 202 when it is in the journal. The same id with the same body again is the same graph, with another body 409."""
    raw = await call.body()
    most = call.desk.config.limits.graph_operators
    graph = await aside(call.body_bytes, parse_graph, raw, call.daemon.task_defaults, most)
    for operator in graph.operators:
        for task in operator.tasks:
            if problem := forbidden(task, call.token):
                raise Forbidden(problem.detail)
    body = await aside(call.body_bytes, encode, graph)
    reply = await call.daemon.submit(SubmitGraph(graph=graph, body=body, actor=call.actor), 1)
    answer = {**reply, "durability": call.daemon.durability}
    return call.answer(answer, 202, {"Location": f"/v1/graphs/{reply['id']}"})


async def listing(call: Call) -> web.Response:
    """A line a graph, in order of acceptance."""
    return await call.read({"graphs": call.view.graphs.all()})


async def one(call: Call) -> web.Response:
    """Progress, critical path, bound, and a line an operator unless `operators=false`."""
    return await call.read(call.view.graphs.one(call.name("id"), operators=call.flag("operators", True)))


async def cancel(call: Call) -> web.Response:
    """Cancel all of it; 409 when it has ended."""
    await call.no_body()
    ident = call.name("id")
    if call.token.queues:
        for operator in call.view.graphs.find(ident).graph.operators:
            for task in operator.tasks:
                call.token.require_queue(task.queue)
    await call.daemon.ask(CancelGraph(graph=ident, actor=call.actor))
    return await call.read({"id": ident, "state": call.view.graphs.find(ident).state}, 202)
