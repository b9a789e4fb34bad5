"""Traces as CSV in the columns of the openb trace, into a `Scenario` (CONTRACT, section 5, last paragraph).

    nodes: sn,cpu_milli,memory_mib,gpu,model
    tasks: name|pod,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec[,qos][,submit_s,duration_s|run_s][,estimate_s][,kind][,queue][,gang]

`duration_s` is told to the scheduler; `run_s` is how long a task truly runs, and it is not. `gang`: so many tasks of this row, all or none.
With times the replay is timed. Without, tasks come one a tick in file order, never leave, and one that does not fit at its decision
is dropped: the FGD protocol (Weng et al., USENIX ATC 2023). Nothing is evicted then, because there nothing ever leaves.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hetsched import config as configuration
from hetsched.errors import ConfigError, ScenarioError
from hetsched.model import (
    DeviceAsk,
    DeviceSpec,
    GangRef,
    Guarantee,
    NodeSpec,
    Qos,
    Rejection,
    Resources,
    Submission,
    Task,
)
from hetsched.sim.scenario import Drop, Happening, Scenario

MIB = 2**20
QOS = {
    "": (Qos.production, Guarantee.guaranteed),
    "LS": (Qos.production, Guarantee.guaranteed),
    "Burstable": (Qos.production, Guarantee.burstable),
    "BE": (Qos.best_effort, Guarantee.guaranteed),
    "Guaranteed": (Qos.critical, Guarantee.guaranteed),
}
STRAND_LIMIT = 40
"""`policy.strand_limit` where nothing ever leaves: CPU that is gone is gone for good there, and who waits is dropped. `--set` goes before."""

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._:/-]")
Row = dict[str, str]


def read_trace(
    nodes: Path, tasks: Path, *, tick_s: float, policy: str | None, seed: int | None, sets: Sequence[str] = ()
) -> Scenario:
    """Both files as one scenario. Raises ScenarioError naming file, line and column."""
    if not (0 < tick_s <= 3600):
        raise ScenarioError("--tick must be above 0 and at most 3600 seconds")
    specs = read_nodes(nodes)
    pods = read_pods(tasks)
    is_timed = bool(pods) and all(pod.submit_ns is not None for pod in pods)
    return Scenario(
        config=_config(policy, is_timed, sets),
        seed=seed or 0,
        nodes=specs,
        happenings=tuple(timed(pods) if is_timed else _ticking(pods, round(tick_s * 1e9))),
    )


def read_nodes(path: Path) -> tuple[NodeSpec, ...]:
    """The nodes file. Raises ScenarioError naming file, line and column."""
    specs = tuple(_read(path, ("sn", "cpu_milli", "memory_mib", "gpu"), _node))
    if len({spec.name for spec in specs}) < len(specs):
        raise ScenarioError(f"{path}: a node is there twice")
    return specs


def read_pods(path: Path) -> list[Pod]:
    """The tasks file, a row each. Raises ScenarioError likewise."""
    return list(_read(path, ("cpu_milli", "memory_mib", "num_gpu"), _pod))


class Pod(msgspec.Struct, frozen=True):
    """A row: the task without its id (`name` holds what the file calls it), and what else the file knows."""

    task: Task
    submit_ns: int | None
    runs_s: float | None
    gang: int


def timed(pods: list[Pod]) -> list[Happening]:
    """Each is submitted when its row says."""
    out = [Happening(pod.submit_ns or 0, "submit", one, pod.runs_s) for pod, one in _submissions(pods)]
    return sorted(out, key=lambda one: one.at_ns)


def _ticking(pods: list[Pod], tick_ns: int) -> Iterator[Happening]:
    for number, (_, one) in enumerate(_submissions(pods)):
        yield Happening((number + 1) * tick_ns, "submit", Drop(one))


def _config(policy: str | None, is_timed: bool, sets: Sequence[str]) -> configuration.Config:
    raw: dict[str, Any] = {} if policy is None else {"policy": {"preset": policy}}
    if not is_timed:  # each task is decided in its own turn, against what stands
        raw |= {"batch": {"size": 1}, "preemption": {"enabled": False}}
        raw["policy"] = {**raw.get("policy", {}), "strand_limit": STRAND_LIMIT}
    try:
        return configuration.from_mapping(raw, sets=sets)
    except ConfigError as error:
        raise ScenarioError(str(error)) from None


# ---------------------------------------------------------------------- rows


def _read(path: Path, needed: tuple[str, ...], make: Callable[[Row], Any]) -> Iterator[Any]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in needed if name not in (rows.fieldnames or ())]
            if missing:
                raise ScenarioError(f"{path}: lacks the column {', '.join(missing)}")
            for row in rows:
                try:
                    yield make({key: value or "" for key, value in row.items() if isinstance(key, str)})
                except ValueError as error:
                    raise ScenarioError(f"{path}, line {rows.line_num}: {error}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"cannot read {path}: {error}") from None


def _node(row: Row) -> NodeSpec:
    count, model = _whole(row, "gpu", 64), row.get("model") or None
    return NodeSpec(
        name=_identifier(row["sn"]),
        cpu_milli=_whole(row, "cpu_milli"),
        memory_bytes=_whole(row, "memory_mib") * MIB,
        devices=tuple(DeviceSpec(id=f"gpu-{number}", kind="gpu", model=model) for number in range(count)),
    )


def _pod(row: Row) -> Pod:
    word = row.get("qos", "")
    if word not in QOS:
        raise ValueError(f"qos is {word!r}, must be one of {', '.join(filter(None, QOS))}")
    qos, guarantee = QOS[word]
    submit_s, duration_s = _seconds(row, "submit_s"), _seconds(row, "duration_s")
    task = Task(
        name=row.get("name") or row.get("pod") or "pod",
        qos=qos,
        guarantee=guarantee,
        preemptible=qos is Qos.best_effort,
        resources=Resources(
            cpu_milli=_whole(row, "cpu_milli"), memory_bytes=_whole(row, "memory_mib") * MIB, devices=_ask(row)
        ),
        duration=duration_s if submit_s is not None else None,
        estimate=_seconds(row, "estimate_s"),
        kind=row.get("kind") or "batch",
        queue=row.get("queue") or "default",
    )
    submit_ns = None if submit_s is None else round(submit_s * 1e9)
    return Pod(task, submit_ns, _seconds(row, "run_s"), _whole(row, "gang", 100_000))


def _ask(row: Row) -> tuple[DeviceAsk, ...]:
    count = _whole(row, "num_gpu", 1_000_000)
    if count == 0:
        return ()
    milli = min(_whole(row, "gpu_milli"), 1000) if row.get("gpu_milli") else 1000
    models = tuple(sorted(set(filter(None, row.get("gpu_spec", "").split("|")))))
    if milli == 1000:
        return (DeviceAsk(kind="gpu", whole=count, models=models, ordered=False),)
    if milli == 0:
        raise ValueError("gpu_milli is 0 beside num_gpu above 0")
    return (DeviceAsk(kind="gpu", parts=count, part_milli=milli, models=models, ordered=False),)


def _names(pods: list[Pod]) -> Iterator[str]:
    """Ids: as in the file; a name that comes again (a trace drawn with replacement) gets its number."""
    seen: dict[str, int] = {}
    taken: set[str] = set()
    for pod in pods:
        base = _identifier(pod.task.name or "pod")
        name = base
        while name in taken:
            seen[base] = seen.get(base, 1) + 1
            name = f"{base}.{seen[base]}"
        taken.add(name)
        yield name


def _submissions(pods: list[Pod]) -> Iterator[tuple[Pod, Submission]]:
    for pod, name in zip(pods, _names(pods), strict=True):
        yield pod, _submission(pod, name)


def _submission(pod: Pod, name: str) -> Submission:
    if pod.gang == 0:
        return Submission(single=True, items=[msgspec.structs.replace(pod.task, id=name, name=None)])
    gang = GangRef(id=name, size=pod.gang, min_size=pod.gang)
    members: list[Task | Rejection] = [
        msgspec.structs.replace(pod.task, id=f"{name}-{at}", name=None, gang=gang) for at in range(pod.gang)
    ]
    return Submission(single=False, items=members)


def _identifier(text: str) -> str:
    if not text:
        raise ValueError("has no name")
    return _NOT_IN_IDS.sub("-", text)[:100]


def _whole(row: Row, column: str, most: int = 2**43) -> int:
    text = row.get(column) or "0"
    try:
        value = int(text) if text.isdigit() else int(float(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{column} is {text[:32]!r}, must be a whole number") from None
    if not 0 <= value <= most:
        raise ValueError(f"{column} is {text[:32]}, must be from 0 to {most}")
    return value


def _seconds(row: Row, column: str) -> float | None:
    text = row.get(column)
    if not text:
        return None
    value = float(text)
    if not (math.isfinite(value) and 0 <= value <= 3.2e9):
        raise ValueError(f"{column} is {text[:32]}, must be seconds, not negative")
    return value
