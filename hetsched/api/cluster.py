"""Nodes, devices, queues and the cluster as a whole."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from hetsched.api import schemas
from hetsched.api.call import Call
from hetsched.model import parse_queue
from hetsched.scheduler.messages import OperateNode, SetQueue


async def nodes(call: Call) -> web.Response:
    """Every node: capacity, use, state, and whether its agent is connected."""
    return await call.read({"nodes": [_with_link(call, node) for node in call.view.nodes()]})


async def node(call: Call) -> web.Response:
    """One node."""
    return await call.read(_with_link(call, call.view.node(call.name("name"))))


async def drain(call: Call) -> web.Response:
    """Nothing new; what runs finishes."""
    return await _operate(call, "drain")


async def cordon(call: Call) -> web.Response:
    """Nothing new."""
    return await _operate(call, "cordon")


async def uncordon(call: Call) -> web.Response:
    """Takes tasks again."""
    return await _operate(call, "uncordon")


async def devices(call: Call) -> web.Response:
    """Every device: shares, health, and what its agent last read from it."""
    links = call.links
    found = []
    for device in call.view.devices():
        reading = links and links.readings.of(device["node"], device["id"])
        found.append(device if reading is None else {**device, "reading": reading})
    return await call.read({"devices": found})


async def queues(call: Call) -> web.Response:
    """Every tenant's queue."""
    return await call.read({"queues": call.view.queues()})


async def queue(call: Call) -> web.Response:
    """One queue."""
    return await call.read(call.view.queue(call.name("name")))


async def set_queue(call: Call) -> web.Response:
    """Make or change a queue."""
    body = await call.typed_body(schemas.QueueBody)
    spec = parse_queue(
        {"name": call.name("name"), "weight": body.weight, "guaranteed": body.guaranteed, "limit": body.limit}
    )
    return call.answer(await call.daemon.ask(SetQueue(queue=spec, actor=call.actor)))


async def cluster(call: Call) -> web.Response:
    """Totals, use, fragmentation, lanes, leader, epoch."""
    return await call.read({**call.view.cluster(), **call.reader.about()})


async def cells(call: Call) -> web.Response:
    """All cells, ours among them; none where the cluster is not parted."""
    office = call.desk.cells
    return await call.read({"cells": [] if office is None else office.told()})


async def hand_over(call: Call) -> web.Response:
    """Let a standby lead: the one named in `to`, or the one that is furthest. Answers when it may; 409 where there is none."""
    body = await call.typed_body(schemas.HandoverBody)
    successor = await call.daemon.handover.to(body.to)
    return call.answer({"to": successor.name, "leader": successor.url})


async def _operate(call: Call, verb: str) -> web.Response:
    await call.no_body()
    asked = OperateNode(verb=verb, node=call.name("name"), actor=call.actor)
    return call.answer(await call.daemon.ask(asked))


def _with_link(call: Call, node: dict[str, Any]) -> dict[str, Any]:
    if call.links is None:
        return node
    link = call.links.by_node.get(node["name"])
    if link is None:
        return {**node, "connected": False}
    return {**node, "connected": True, "agent_version": link.version, "load": link.load}
