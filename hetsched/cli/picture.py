"""The cluster as a picture for terminals: figures, nodes with a bar a device, tenant queues. Drawn from the API's answers; asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hetsched.cli import words
from hetsched.cli.output import one_line

_BARS = "·▁▂▃▄▅▆▇█"
_WELL = ("up", "ready", "open")

Answer = Mapping[str, Any]


def figures(cluster: Answer) -> str:
    """How many wait in each lane, are held, run; what is used of each kind."""
    tasks, lanes = cluster.get("tasks", {}), cluster.get("lanes", {})
    used, capacity = cluster.get("used", {}), cluster.get("capacity", {})
    waiting = " ".join(f"{name} {lanes.get(name, 0)}" for name in ("immediate", "batch", "backoff"))
    running = sum(tasks.get(state, 0) for state in ("placed", "running", "stopping"))
    kinds = " ".join(f"{k} {used.get(k, 0):g}/{n:g}" for k, n in capacity.items() if k != "memory" and n)
    nodes = cluster.get("nodes", {})
    away = nodes.get("total", 0) - nodes.get("open", 0)
    if away:  # their capacity is not counted, what runs there is
        kinds += f"  ({away} of {nodes['total']} nodes away)"
    return f"{waiting}  held {tasks.get('held', 0)}  running {running}  {kinds}"


def nodes(rows: Sequence[Answer], devices: Iterable[Answer]) -> Table:
    """A row a node: state, tasks, cores, and a bar a device: how much of it is given away, red where it is not healthy."""
    of: dict[str, list[Answer]] = {}
    for device in devices:
        of.setdefault(device["node"], []).append(device)
    table = _table(("node", "state"), ("tasks", "cores"), ("devices",))
    for node in rows:
        state = "draining" if node.get("draining") else "cordoned" if node.get("cordoned") else node["state"]
        cores = f"{node.get('cpu', 0) - node.get('cpu_free', 0):.1f}/{node.get('cpu', 0):.0f}"
        shown = Text(state, style="" if state in _WELL else "red")
        table.add_row(
            one_line(node["name"]), shown, str(node.get("running", 0)), cores, _bars(of.get(node["name"], []))
        )
    return table


def queues(rows: Iterable[Answer]) -> Table:
    """A row a queue: its weight, what waits and runs, what it uses."""
    table = _table(("queue",), ("weight", "waiting", "running"), ("used",))
    for queue in rows:
        used = " ".join(
            f"{kind} {words.size(amount) if kind == 'memory' else format(amount, 'g')}"
            for kind, amount in queue.get("used", {}).items()
            if amount
        )
        table.add_row(
            one_line(queue["name"]),
            f"{queue.get('weight', 1):g}",
            str(queue.get("waiting", 0)),
            str(queue.get("running", 0)),
            used,
        )
    return table


def _table(left: Sequence[str], right: Sequence[str], last: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    for column in last:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    return table


def _bars(devices: Iterable[Answer]) -> Text:
    text = Text()
    told = None
    for device in devices:
        what = one_line(device.get("model") or device.get("kind"))
        if what != told:
            told = what
            text.append(f"{' ' if text else ''}{what} ", style="dim")
        bar = _BARS[min(len(_BARS) - 1, -(-device.get("share_used", 0) * (len(_BARS) - 1) // 1000))]
        text.append(bar, style="green" if device.get("health") == "healthy" else "red")
    return text
