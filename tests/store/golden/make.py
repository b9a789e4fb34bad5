"""Writes a golden journal with the code as it is now: `python -m tests.store.golden.make`. See README.md beside this file before doing so."""

from __future__ import annotations

import asyncio
import random
import zlib
from pathlib import Path
from typing import Any

import msgspec

from hetsched import __version__
from hetsched.model.read_graph import parse_graph
from hetsched.policy.profiles import Profile
from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from hetsched.store import MemoryServer, memory_store
from hetsched.store.backend import Head
from tests.scheduler.build import Story, node, task
from tests.scheduler.test_bundles import bundle, some
from tests.scheduler.test_replay import _something
from tests.store.helpers import config

HERE = Path(__file__).parent
TAINTED = node("d", gpus=2, model="T4", taints=[{"key": "only", "value": "us", "effect": "NoSchedule"}])
GRAPH = {
    "id": "graph",
    "samples": 100,
    "template": {"resources": {"gpu": 1}},
    "operators": [
        {"id": "load", "cost_per_sample": 0.1, "speeds": {"A100": 1, "H100": 2}},
        {"id": "sum", "cost": 5, "after": ["load"], "speeds": {"A100": 1}},
    ],
}


class Kept(msgspec.Struct):
    """All that a memory server holds."""

    head: Head
    frames: list[tuple[str, bytes]]
    chunks: list[tuple[str, int, bytes]]


def busy(seed: int = 7) -> Story:
    """A world in which every kind of fact is said."""
    dice = random.Random(seed)
    story = Story(
        [node("a", gpus=4), node("b", cpu=4), node("c", gpus=2, model="H100", labels={"rack": "r1"}), TAINTED],
        config={"limits": {"retention_tasks": 12}, "batch": {"size": 4}, "overcommit": {"cpu": 1.5}},
    )
    story.queue(name="q", limit={"cpu": 6}, guaranteed={"gpu": 1})
    story.submit({"template": task("keyed"), "count": 3}, idempotency_key="a-key")
    story.step(bundle(some(dice, 12)))
    story.ask(m.SubmitGraph(graph=parse_graph(GRAPH)))
    for turn in range(70):
        _something(dice, story, f"t{turn}")
        live = [row["id"] for row in story.scheduler.view.tasks(state="running", limit=5)["tasks"]]
        if live and turn % 9 == 0:
            where = story.task(live[0])["placement"]
            use = m.AttemptUse(task=live[0], attempt=where["attempt"], cpu_milli=500, memory_bytes=1 << 20)
            story.step(m.UseReported(node=where["node"], uses=(use,)))
        if turn == 30:
            story.submit({"template": task("urgent", qos="critical", resources={"gpu": 2}), "count": 2})
        if turn == 35:
            for verb in ("hold", "priority", "release"):
                story.submit(task(verb, cpu=4))
                story.ask(m.Operate(verb=verb if verb != "release" else "hold", task=verb, priority=7, actor="ann"))
            story.ask(m.Operate(verb="release", task="release", actor="ann"))
            story.ask(m.ImportProfiles(profiles=(Profile("training", "A100", "s", runs=3, times_ms=[10, 20, 30]),)))
        if turn == 38:
            for name, qos in (("victim", "background"), ("evictor", "critical")):
                alone = {"models": ["T4"], "tolerations": [{"key": "only", "operator": "Exists"}], "grace": 600}
                story.submit(task(name, qos=qos, resources={"gpu": 2}, **alone))
                story.wait(1)
            story.ask(m.Cancel(ids=("victim",)))
        if turn == 40:
            story.step(m.NodeSilent(node="b"), m.NodeLost(node="b"))
        story.wait(dice.choice([0, 0.05, 1, 3]))
    return story


async def written(story: Story) -> MemoryServer:
    """Its frames in a journal, with a snapshot after two thirds of them."""
    server = MemoryServer()
    store = memory_store(server, config())
    await store.open()
    scheduler = Scheduler.restore(story.config, None, seed=1)
    for number, facts in enumerate(story.frames):
        await store.append(facts)
        scheduler.apply(facts)
        if number == 2 * len(story.frames) // 3:
            await store.save_snapshot(scheduler.snapshot())
    await store.close()
    return server


def told(scheduler: Scheduler) -> dict[str, Any]:
    """The state in the contract's words, without what hangs on the moment of asking."""
    view = scheduler.view
    rows = view.tasks(limit=10_000)["tasks"]
    return {
        "tasks": [view.task(row["id"]) for row in rows],
        "nodes": list(view.nodes()),
        "devices": list(view.devices()),
        "queues": view.queues(),
        "profiles": view.profiles(with_times=True),
        "graphs": [{"id": graph["id"], "state": graph["state"]} for graph in view.graphs.all()],
        "event_seq": scheduler.books.event_seq,
        "audit": [msgspec.to_builtins(word) for word in scheduler.books.audit],
        "keys": [msgspec.to_builtins(word.key) for word in scheduler.books.keys.values()],
    }


def pack(value: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value), 9)


def main() -> None:
    story = busy()
    server = asyncio.run(written(story))
    assert server.head is not None
    kept = Kept(
        server.head,
        [(position.id, data) for position, data in server.frames],
        [(name, index, data) for (name, index), data in server.chunks.items()],
    )
    (HERE / f"journal-{__version__}.z").write_bytes(pack(kept))
    (HERE / f"state-{__version__}.z").write_bytes(zlib.compress(msgspec.json.encode(told(story.scheduler)), 9))


if __name__ == "__main__":
    main()
