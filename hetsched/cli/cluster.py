"""Nodes, devices and tenant queues: what there is, what is used, and the operator's hand on it."""

from __future__ import annotations

import argparse
from typing import Any

from hetsched.cli import exits, words
from hetsched.cli.output import emit, emit_json, pairs, table
from hetsched.cli.parser import Usage, add_reading, client_of, nearest, number, whole
from hetsched.cli.table import Command
from hetsched.client import Client
from hetsched.errors import NotFound


def items(answer: Any, name: str) -> list[dict[str, Any]]:
    """The list in a list answer, which may be bare or {"nodes": […]}."""
    found = answer.get(name, []) if isinstance(answer, dict) else answer
    return list(found)


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NODE")
    add_reading(parser)


def _names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NODE")
    add_reading(parser)


def _node_list(options: argparse.Namespace) -> int:
    answer = client_of(options).nodes()
    if options.json:
        emit_json(answer)
    else:
        table(("NODE", "STATE", "CPU", "MEMORY", "DEVICES", "TASKS", "LABELS"), map(_node_row, items(answer, "nodes")))
    return exits.OK


def _node_row(node: dict[str, Any]) -> tuple[object, ...]:
    cpu, memory = node.get("cpu", 0), node.get("memory", 0)
    state = "draining" if node.get("draining") else "cordoned" if node.get("cordoned") else node.get("state", "")
    return (
        node.get("name", ""),
        state,
        f"{cpu - node.get('cpu_free', cpu):g}/{cpu:g}",
        f"{words.size(memory - node.get('memory_free', memory))}/{words.size(memory)}",
        node.get("device_count", 0),
        node.get("running", 0),
        words.value(node.get("labels", {})),
    )


def _node_show(options: argparse.Namespace) -> int:
    node = client_of(options).node(options.name)
    if options.json:
        emit_json(node)
        return exits.OK
    facts = [
        (name.replace("_", " "), _fact(name, value))
        for name, value in node.items()
        if name not in ("devices", "overcommit")
    ]
    lent = node.get("overcommit", {})
    pairs([*facts, *((f"{resource} overcommit", _lent(resource, amounts)) for resource, amounts in lent.items())])
    if node.get("devices"):
        emit()
        _device_table(node["devices"])
    return exits.OK


def _lent(resource: str, amounts: dict[str, Any]) -> str:
    """ "best_effort 6, idle 9, lendable 8, lent 2": what best-effort tasks hold, what others hold and do not use, how much of that may be lent
    and how much is."""
    return ", ".join(f"{name} {_fact(resource, amount)}" for name, amount in amounts.items())


def _fact(name: str, value: Any) -> str:
    return words.size(value) if name.startswith("memory") and value is not None else words.value(value)


def _operate(options: argparse.Namespace) -> int:
    client = client_of(options)
    answers = [client.operate_node(options.verb, name) for name in options.names]
    if options.json:
        emit_json({"nodes": answers})
    else:
        for name in options.names:
            emit(f"{name} {_DONE[options.verb]}")
    return exits.OK


_DONE = {"drain": "is draining", "cordon": "is cordoned", "uncordon": "is open again"}


def _device_list(options: argparse.Namespace) -> int:
    answer = client_of(options).devices()
    if options.json:
        emit_json(answer)
    else:
        _device_table(items(answer, "devices"))
    return exits.OK


def _device_table(devices: list[dict[str, Any]]) -> None:
    table(("NODE", "DEVICE", "MODEL", "USED", "MEMORY", "HEALTH", "LOAD", "TASKS"), map(_device_row, devices))


def _device_row(device: dict[str, Any]) -> tuple[object, ...]:
    reading = device.get("reading") or {}
    load = reading.get("utilization_percent")
    memory = device.get("memory")
    return (
        device.get("node", ""),
        device.get("id", ""),
        device.get("model") or "-",
        words.amount(device.get("share_used", 0)),
        "-" if memory is None else f"{words.size(device.get('memory_reserved', 0))}/{words.size(memory)}",
        device.get("health", ""),
        "-" if load is None else f"{load:.0f} %",
        ",".join(holder["task"] for holder in device.get("tasks", ())),
    )


def _queue_list(options: argparse.Namespace) -> int:
    answer = client_of(options).queues()
    if options.json:
        emit_json(answer)
        return exits.OK
    columns = ("QUEUE", "WEIGHT", "GUARANTEED", "LIMIT", "USED", "WAITING", "RUNNING")
    table(columns, map(_queue_row, items(answer, "queues")))
    return exits.OK


def _queue_row(queue: dict[str, Any]) -> tuple[object, ...]:
    amounts = (words.amounts(queue.get(name) or {}) or "-" for name in ("guaranteed", "limit", "used"))
    return (queue.get("name", ""), queue.get("weight", ""), *amounts, queue.get("waiting", 0), queue.get("running", 0))


def _queue_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="QUEUE", help="research, or research/vision below it")
    parser.add_argument("--weight", type=whole, metavar="N")
    parser.add_argument("--guaranteed", action="append", metavar="WHAT=N", help="gpu=8, cpu=64, memory=1Ti; may repeat")
    parser.add_argument("--limit", action="append", metavar="WHAT=N")
    add_reading(parser)


def _queue_set(options: argparse.Namespace) -> int:
    """The daemon replaces a queue whole; what was not given stays as it is."""
    given: dict[str, Any] = {} if options.weight is None else {"weight": options.weight}
    for name in ("guaranteed", "limit"):
        if getattr(options, name):
            given[name] = dict(_amount(name, text) for text in getattr(options, name))
    if not given:
        raise Usage("set what? --weight, --guaranteed or --limit")
    client = client_of(options)
    answer = client.set_queue(options.name, {**_as_it_is(client, options.name), **given})
    emit_json(answer) if options.json else emit(f"{options.name} is set")
    return exits.OK


def _as_it_is(client: Client, name: str) -> dict[str, Any]:
    try:
        queue = client.queue(name)
    except NotFound:
        return {}
    return {field: queue[field] for field in ("weight", "guaranteed", "limit") if field in queue}


def _amount(flag: str, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Usage(f"--{flag} {text}: it is written WHAT=N" + nearest(name, ("gpu", "cpu", "memory")))
    return name, number(value)


def _cell_list(options: argparse.Namespace) -> int:
    answer = client_of(options).cells()
    if options.json:
        emit_json(answer)
    else:
        head = ("CELL", "LEADER", "EPOCH", "NODES", "USED", "CAPACITY", "RUNNING", "BACKLOG", "ON THEIR WAY", "HEARD")
        table(head, map(_cell_row, items(answer, "cells")))
    return exits.OK


def _cell_row(cell: dict[str, Any]) -> tuple[object, ...]:
    heard = f"{cell['age']:.1f} s ago" + (", silent" if cell["silent"] else "")
    amounts = (words.amounts(cell["used"]), words.amounts(cell["capacity"]))
    return (
        *(cell["name"], cell["leader"], cell["epoch"], cell["nodes"], *amounts),
        *(cell["running"], cell["backlog"], cell["on_their_way"], heard),
    )


COMMANDS = {
    "cell list": Command(add_reading, _cell_list),
    "node list": Command(add_reading, _node_list),
    "node show": Command(_name, _node_show),
    "node drain": Command(_names, _operate),
    "node cordon": Command(_names, _operate),
    "node uncordon": Command(_names, _operate),
    "device list": Command(add_reading, _device_list),
    "queue list": Command(add_reading, _queue_list),
    "queue set": Command(_queue_arguments, _queue_set),
}
