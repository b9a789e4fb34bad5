"""Tasks are held to what they asked for where the agent has cgroups for it, and people are told where it has not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hetsched.agent import delegation
from hetsched.agent.delegation import controllers
from hetsched.agent.records import limits_of
from hetsched.model import parse_task
from tests.agent_run.bench import open_bench, order, own_cgroup, until

BOTH = frozenset({"cpu", "memory"})


def group(path: Path, **files: str) -> Path:
    """A directory with the files of a cgroup."""
    path.mkdir(exist_ok=True)
    for name in ("controllers", "subtree_control", "procs"):
        (path / f"cgroup.{name}").write_text(files.get(name, ""))
    return path


@pytest.mark.parametrize(
    ("body", "cpu", "memory"),
    [
        ({"resources": {"cpu": 1, "memory": 100}}, 1000, 100),
        ({"resources": {"cpu": 1, "memory": 100}, "guarantee": "best_effort"}, 1000, 100),
        ({"resources": {"cpu": 1, "memory": 100}, "limits": {"cpu": 4, "memory": 300}}, 4000, 300),
        ({"resources": {"cpu": 1, "memory": 100}, "limits": {"cpu": 4}}, 4000, 0),
        ({"resources": {}}, 0, 0),
    ],
)
def test_the_ceiling_is_what_was_asked_for_or_the_limits_of_a_burstable_task(
    body: dict[str, Any], cpu: int, memory: int
) -> None:
    ceiling = parse_task(body).ceiling
    assert (ceiling.cpu_milli, ceiling.memory_bytes) == (cpu, memory)


def test_only_what_can_be_limited_is_written_for_the_shim() -> None:
    asked = order("t", "true", cpu_limit_milli=1500, memory_limit_bytes=4096)
    assert limits_of(asked, BOTH) == {"cpu.max": "150000 100000", "memory.max": "4096"}
    assert limits_of(asked, frozenset({"cpu"})) == {"cpu.max": "150000 100000"}
    assert limits_of(order("t", "true", cpu_limit_milli=1), BOTH) == {"cpu.max": "1000 100000"}
    assert limits_of(order("t", "true"), BOTH) == {}


async def test_the_shim_writes_them_and_hands_the_controllers_down(data_dir: Path, tmp_path: Path) -> None:
    """Into plain directories, which take any file; a real cgroup takes only its own."""
    tasks = tmp_path / "tasks"
    async with open_bench(data_dir, cgroup=tasks, controllers=BOTH) as bench:
        await bench.run("t", "true", cpu_limit_milli=1500, memory_limit_bytes=4096)
        (own,) = [path for path in tasks.iterdir() if path.is_dir()]
        assert (tasks / "cgroup.subtree_control").read_text() == "+cpu +memory"
        assert (own / "cpu.max").read_text() == "150000 100000"
        assert (own / "memory.max").read_text() == "4096"
        assert (own / "cgroup.procs").read_text() == "0"
        await bench.run("u", "true", cpu_limit_milli=1000, memory_limit_bytes=4096)
        assert (own / "cpu.max").read_text() == "100000 100000"


async def test_a_group_is_kept_for_the_next_short_task_and_gone_with_the_agent(data_dir: Path) -> None:
    cgroup = own_cgroup(data_dir)
    if cgroup is None:
        pytest.skip("no cgroup (v2) is delegated to this process")
    async with open_bench(data_dir, cgroup=cgroup) as bench:
        for number in range(5):
            ended = await bench.run(f"t{number}", "sh", "-c", "cat /proc/self/cgroup")
            assert ended.succeeded
        groups = {bench.stream(f"t{number}").rpartition("0::")[2] for number in range(5)}
        assert all(cgroup.name in group for group in groups)
        assert len([path for path in cgroup.iterdir() if path.is_dir()]) <= len(groups)
    await until(lambda: not cgroup.exists(), "the spawner sees that its agent is gone, and goes too")


def test_an_agent_alone_in_its_cgroup_steps_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = group(tmp_path / "agent", controllers="cpu io memory", procs=f"{os.getpid()}\n")
    tries = []

    def hand_down(path: Path, names: set[str]) -> bool:
        tries.append(sorted(names))
        if len(tries) == 2:
            (path / "cgroup.subtree_control").write_text("cpu memory")
        return len(tries) == 2

    monkeypatch.setattr(delegation, "_hand_down", hand_down)
    assert controllers(parent / "hetsched-n") == (BOTH, "cpu, memory")
    assert tries == [["cpu", "memory"]] * 2
    assert (parent / "hetsched-agent" / "cgroup.procs").read_text() == str(os.getpid())


def test_others_are_not_moved_and_it_is_said_why_nothing_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation, "_hand_down", lambda *_: False)
    parent = group(tmp_path / "agent", controllers="cpu memory", procs=f"{os.getpid()}\n1\n")
    assert controllers(parent / "hetsched-n") == (frozenset(), "none: other processes are in the agent's cgroup")
    assert not (parent / "hetsched-agent").exists()
    bare = group(tmp_path / "bare")
    assert controllers(bare / "hetsched-n")[1] == "none: the kernel gives no controller to the agent's cgroup"
    assert controllers(None)[1] == "none: no cgroup is delegated to the agent"
