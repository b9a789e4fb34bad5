"""Plain rules beside ours, on one trace in one call; and run times that the scheduler is not told."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from hetsched.config import from_mapping
from hetsched.model import DeviceAsk, DeviceSpec, NodeSpec, Resources, Task
from hetsched.sim import simulate
from hetsched.sim.read_trace import Pod
from loadtest.bench_replay import BASELINE, replay
from loadtest.replay.measure import bound, rooms
from loadtest.replay.world import Drawn, Job, cluster, draw, offered

GIB = 1 << 30
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{at},64000,131072,4,T4\n" for at in range(2))
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,submit_s,run_s,queue,gang\n"


def simulated(folder: Path, tasks: str, policy: str) -> dict[str, Any]:
    (folder / "nodes.csv").write_text(NODES)
    (folder / "tasks.csv").write_text(HEAD + tasks)
    out = io.StringIO()
    paths = {"nodes": folder / "nodes.csv", "tasks": folder / "tasks.csv"}
    assert simulate(policy=policy, out=out, as_json=True, **paths) == 0
    return json.loads(out.getvalue())


def test_each_policy_of_a_comparison_may_have_keys_of_its_own(tmp_path: Path) -> None:
    tasks = "long,1000,1024,3,1000,0,100,a,\nwide,1000,1024,4,1000,1,100,a,2\nsmall,1000,1024,1,1000,2,10,b,\n"
    ours, plain = simulated(tmp_path, tasks, "price,least-loaded+order=fifo+backfill.enabled=false")["policies"]
    assert ours["wait"]["mean"] < plain["wait"]["mean"]
    assert plain["policy"] == "least-loaded+order=fifo+backfill.enabled=false"


def test_the_members_of_a_gang_start_together_and_run_as_long_as_the_file_says(tmp_path: Path) -> None:
    told = simulated(tmp_path, "g,1000,1024,4,1000,0,100,team,2\nnext,1000,1024,1,1000,1,5,team,\n", "price")
    assert (told["submitted"], told["succeeded"]) == (3, 3)
    assert told["makespan"] == pytest.approx(105.1, abs=0.2)


def test_without_sharing_a_half_takes_a_whole_device(tmp_path: Path) -> None:
    tasks = "".join(f"h{at},1000,1024,1,500,0,100,a,\n" for at in range(8))
    assert simulated(tmp_path, tasks, "price")["allocated"]["gpu"]["mean"] == pytest.approx(0.5, abs=0.01)
    assert simulated(tmp_path, tasks, "price+sharing=false")["allocated"]["gpu"]["mean"] == pytest.approx(1, abs=0.01)


# ---------------------------------------------------------------- the slice that always runs


def own_world(load: float) -> tuple[list[Drawn], tuple[NodeSpec, ...]]:
    """Made jobs of the Philly kind (nine in ten small and short, half of the work on eight GPUs) on made nodes of the openb kind."""
    rng = random.Random(4)
    nodes = [_node(at, *kind) for at, kind in enumerate([(96, 8, "G2")] * 5 + [(104, 2, "T4")] * 4 + [(32, 4, "V100")])]
    jobs, at_s = [], 0.0
    for _ in range(700):
        at_s += rng.expovariate(1 / 300)
        gpus = rng.choices((1, 2, 4, 8, 16), weights=(80, 7, 6, 6, 1))[0]
        jobs.append(Job(round(at_s, 1), round(rng.lognormvariate(6.5 + gpus**0.5, 1.3), 1), gpus, rng.choice("abc")))
    pods = [_pod(gpus, milli) for gpus in (1, 2, 4, 8) for milli in ((1000, 400) if gpus == 1 else (1000,))]
    drawn = draw(jobs, pods, nodes, parts=True, knows="learned", seed=1)
    return drawn, cluster(nodes, offered(drawn) / load)


def _node(at: int, cores: int, gpus: int, model: str) -> NodeSpec:
    devices = tuple(DeviceSpec(id=f"gpu-{number}", kind="gpu", model=model) for number in range(gpus))
    return NodeSpec(name=f"m{at}", cpu_milli=cores * 1000, memory_bytes=384 * GIB, devices=devices)


def _pod(gpus: int, milli: int) -> Pod:
    ask = DeviceAsk(kind="gpu", whole=gpus) if milli == 1000 else DeviceAsk(kind="gpu", parts=gpus, part_milli=milli)
    asked = Resources(cpu_milli=gpus * 6000, memory_bytes=gpus * 20 * GIB, devices=(ask,))
    return Pod(Task(name="pod", resources=asked), 0, None, 0)


def test_jobs_wait_less_devices_work_no_less_and_nobody_starves() -> None:
    drawn, nodes = own_world(1.05)
    ours, plain = replay(drawn, nodes, (), 1), replay(drawn, nodes, BASELINE, 1)
    assert ours["waiting"] == plain["waiting"] == 0
    assert ours["wait"]["mean"] < 0.37 * plain["wait"]["mean"]
    assert ours["used"] >= plain["used"]
    devices = sum(len(node.devices) for node in nodes)
    for room in ({1: devices}, rooms(nodes)):
        assert ours["used"] * devices * max(one.job.submit_s for one in drawn) <= bound(drawn, room) * 1.0001
    for kind, classes in ours["classes"].items():
        for name, told in classes.items():
            assert told["p99"] <= 1.5 * plain["classes"][kind][name]["p99"], (kind, name)


def test_what_is_in_use_is_a_mean_over_time_whatever_the_hours_are_cut_into() -> None:
    nodes = (_node(0, 96, 8, "G2"),)
    jobs = [Job(0.0, 1800.0, 8, "a"), Job(5400.0, 10.0, 1, "a")]
    drawn = draw(jobs, [_pod(gpus, 1000) for gpus in (1, 8)], nodes, parts=False, knows="learned", seed=1)
    assert replay(drawn, nodes, (), 1)["used"] == pytest.approx(1800 / 5400, rel=1e-4)


def test_the_plain_rules_are_a_configuration() -> None:
    config = from_mapping({}, sets=BASELINE)
    assert (config.order, config.sharing, config.backfill.enabled) == ("fifo", False, False)
