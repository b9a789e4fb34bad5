"""Jobs of one trace on a cluster in the proportions of another.

Sizes, durations, arrivals and queues (`vc`) are those recorded in the Philly trace (submit_s,duration_s,num_gpus,vc). The cluster has
the node types of the openb trace in their proportions, so many of each that the jobs offer the wanted load. Cores, memory and (where
asked for) part of a device and qos are drawn for each job from openb's pods of as many GPUs, by seed. More than eight GPUs are a gang
of eights (twelve: of fours).
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from hetsched.config import Config
from hetsched.model import NodeSpec, Qos
from hetsched.sim.read_trace import Pod, timed
from hetsched.sim.scenario import Scenario

KNOWLEDGE = ("learned", "estimate", "oracle")
"""What the scheduler knows of run times: what it learns; guesses that are wrong by a factor; the truth."""

ESTIMATE_SIGMA = math.log(3)
"""Guesses are the truth times exp(N(0, sigma)): two thirds of them are within a factor of three."""

MOST_ON_NODE = 8


class Job(msgspec.Struct, frozen=True):
    """As recorded, times in seconds."""

    submit_s: float
    duration_s: float
    gpus: int
    vc: str


def read_jobs(path: Path, first: int = 0, count: int | None = None) -> list[Job]:
    """In order of submission, times from the first one taken on."""
    with path.open(encoding="utf-8", newline="") as file:
        jobs = [
            Job(float(row["submit_s"]), float(row["duration_s"]), int(row["num_gpus"]), row["vc"])
            for row in csv.DictReader(file)
        ]
    jobs = sorted(jobs, key=lambda job: job.submit_s)[first : None if count is None else first + count]
    return [msgspec.structs.replace(job, submit_s=job.submit_s - jobs[0].submit_s) for job in jobs]


class Drawn(msgspec.Struct, frozen=True):
    """What one job became: `pod` asks for `milli` thousandths of a GPU, all members together."""

    job: Job
    pod: Pod
    milli: int


def draw(
    jobs: Sequence[Job], pods: Sequence[Pod], nodes: Sequence[NodeSpec], *, parts: bool, knows: str, seed: int
) -> list[Drawn]:
    """Give each job what openb's pods of its size have. `parts`: shares and qos too, else whole devices and one level."""
    rng = random.Random(seed)
    by_gpus = {count: _alike(pods, nodes, count, parts) for count in {_member(job.gpus) for job in jobs}}
    return [
        _drawn(number, job, rng.choice(by_gpus[_member(job.gpus)]), parts, knows, rng)
        for number, job in enumerate(jobs)
    ]


def _member(gpus: int) -> int:
    """Devices of one task of the job."""
    return gpus if gpus <= MOST_ON_NODE else math.gcd(gpus, MOST_ON_NODE)


def _alike(pods: Sequence[Pod], nodes: Sequence[NodeSpec], gpus: int, parts: bool) -> list[Pod]:
    """Pods of so many GPUs that most nodes with so many take."""
    wide = [node for node in nodes if len(node.devices) >= gpus]
    out = []
    for pod in pods:
        asks = pod.task.resources.devices
        if sum(ask.whole + ask.parts for ask in asks) != gpus or (not parts and asks[0].parts):
            continue
        taken = sum(_takes(node, pod) for node in wide)
        if 2 * taken >= len(wide):
            out.append(pod)
    assert out, f"no pod of {gpus} GPUs"
    return out


def _takes(node: NodeSpec, pod: Pod) -> bool:
    asked = pod.task.resources
    return node.cpu_milli >= asked.cpu_milli and node.memory_bytes >= asked.memory_bytes


def _drawn(number: int, job: Job, like: Pod, parts: bool, knows: str, rng: random.Random) -> Drawn:
    wrong = math.exp(rng.gauss(0, ESTIMATE_SIGMA))
    task = msgspec.structs.replace(
        like.task,
        name=f"job-{number}",
        kind="training",
        queue=job.vc,
        duration=job.duration_s if knows == "oracle" else None,
        estimate=max(1.0, job.duration_s * wrong) if knows == "estimate" else None,
    )
    if not parts:
        task = msgspec.structs.replace(task, qos=Qos.production, preemptible=False)
    members = job.gpus // _member(job.gpus)
    milli = members * sum(ask.total_milli for ask in task.resources.devices)
    pod = Pod(task, round(job.submit_s * 1e9), job.duration_s, members if members > 1 else 0)
    return Drawn(job, pod, milli)


def offered(drawn: Iterable[Drawn]) -> float:
    """GPUs asked for at a time, mean over the time from the first to the last submission."""
    pairs = [(one.job.submit_s, one.job.duration_s * one.milli / 1000) for one in drawn]
    return sum(work for _, work in pairs) / max(at for at, _ in pairs)


def cluster(nodes: Sequence[NodeSpec], gpus: float) -> tuple[NodeSpec, ...]:
    """Node types in their proportions, the largest remainder first, until there are so many GPUs; in the order of the file."""
    types: dict[tuple[object, ...], list[NodeSpec]] = {}
    for node in nodes:
        types.setdefault((node.cpu_milli, node.memory_bytes, len(node.devices), node.devices[0].model), []).append(node)
    part = gpus / sum(len(node.devices) for node in nodes)
    counts = {key: int(len(members) * part) for key, members in types.items()}
    have = sum(counts[key] * len(types[key][0].devices) for key in types)
    for key in sorted(types, key=lambda key: counts[key] - len(types[key]) * part):
        if have >= gpus:
            break
        counts[key] += 1
        have += len(types[key][0].devices)
    made = [types[key][0] for key in types for _ in range(counts[key])]
    return tuple(msgspec.structs.replace(node, name=f"n{at}") for at, node in enumerate(made))


def world(config: Config, nodes: tuple[NodeSpec, ...], drawn: Sequence[Drawn], seed: int) -> Scenario:
    """What the simulator takes."""
    return Scenario(config=config, seed=seed, nodes=nodes, happenings=tuple(timed([one.pod for one in drawn])))
