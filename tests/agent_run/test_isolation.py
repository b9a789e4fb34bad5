"""What a task sees of the machine: its environment, its masks, its user; and what the node's policy refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hetsched.agent import isolation, policy
from hetsched.agent.attempts import Key
from hetsched.agent.isolation import MASKS, Visible, masks, through_own_mask, visible_by_kind
from hetsched.agent.policy import Policy, Refusal, account_for, executable_for
from tests.agent_run.bench import Bench, open_bench, order

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")


def environment_of(bench: Bench, task: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in bench.stream(task).splitlines())


# ---------------------------------------------------------------------- masks


def test_every_mask_is_set_and_empty_without_devices() -> None:
    assert masks([]) == dict.fromkeys(MASKS, "")


def test_nvidia_devices_are_named_by_uuid_in_the_order_given() -> None:
    both = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    shown = masks([Visible(both, "GPU-b"), Visible(both, "GPU-a")])
    assert shown["CUDA_VISIBLE_DEVICES"] == shown["NVIDIA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert {value for name, value in shown.items() if name not in both} == {""}


def test_hip_counts_what_rocr_has_left_over() -> None:
    both = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    shown = masks([Visible(both, "3"), Visible(both, "5")])
    assert (shown["ROCR_VISIBLE_DEVICES"], shown["HIP_VISIBLE_DEVICES"]) == ("3,5", "0,1")


def test_oneapi_devices_name_their_backend() -> None:
    assert masks([Visible(("ONEAPI_DEVICE_SELECTOR",), "1")])["ONEAPI_DEVICE_SELECTOR"] == "level_zero:1"


def test_a_new_vendors_own_variables_are_set_too() -> None:
    assert masks([Visible(("TT_VISIBLE_DEVICES",), "2")])["TT_VISIBLE_DEVICES"] == "2"


@pytest.mark.parametrize(
    ("kind", "variable"),
    [("gpu", "CUDA_VISIBLE_DEVICES"), ("tpu", "TPU_VISIBLE_CHIPS"), ("npu", "ASCEND_RT_VISIBLE_DEVICES")],
)
def test_pretended_devices_go_by_index_in_the_variables_of_their_kind(kind: str, variable: str) -> None:
    assert masks([visible_by_kind(kind, 3)])[variable] == "3"


def test_indices_are_mapped_through_the_agents_own_mask_and_uuids_stay() -> None:
    devices = {"gpu-0": visible_by_kind("gpu", 0), "gpu-1": visible_by_kind("gpu", 1)}
    own = {"CUDA_VISIBLE_DEVICES": "2,GPU-x"}
    assert {name: one.name for name, one in through_own_mask(devices, own).items()} == {"gpu-0": "2", "gpu-1": "GPU-x"}
    assert through_own_mask(devices, {}) == devices
    assert through_own_mask(devices, {"CUDA_VISIBLE_DEVICES": "all"}) == devices
    named = {"gpu-0": Visible(("CUDA_VISIBLE_DEVICES",), "GPU-y")}
    assert through_own_mask(named, own) == named


# ---------------------------------------------------------------------- environment


async def test_a_task_knows_who_it_is_and_sees_only_its_devices(bench: Bench) -> None:
    await bench.run("train/7", "env", devices=(("gpu-1", 1000), ("gpu-3", 500)), attempt=2, name="n")
    path = bench.spool.root / "train%2F7.2" / "stdout"
    env = dict(line.split("=", 1) for line in path.read_text().splitlines())
    assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,GPU-3"
    assert env["HETSCHED_DEVICES"] == "gpu-1:1000,gpu-3:500"
    assert (env["HETSCHED_TASK"], env["HETSCHED_ATTEMPT"], env["HETSCHED_EPOCH"]) == ("train/7", "2", "1")
    assert (env["HETSCHED_NODE"], env["HETSCHED_URL"]) == ("bench", "http://127.0.0.1:1")
    assert env["ROCR_VISIBLE_DEVICES"] == env["TPU_VISIBLE_CHIPS"] == ""


async def test_nothing_of_the_agents_environment_leaks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETSCHED_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    await bench.run("t", "env")
    assert not {"HETSCHED_TOKEN", "PYTHONPATH", "VIRTUAL_ENV"} & set(environment_of(bench, "t"))


async def test_a_task_cannot_override_masks_or_who_it_is(bench: Bench) -> None:
    own = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "HETSCHED_TASK": "other", "PATH": "/usr/bin:/bin", "MINE": "ä=1"}
    await bench.run("t", "env", env=own)
    env = environment_of(bench, "t")
    assert (env["CUDA_VISIBLE_DEVICES"], env["HETSCHED_TASK"]) == ("", "t")
    assert (env["PATH"], env["MINE"]) == ("/usr/bin:/bin", "ä=1")


async def test_a_denied_variable_is_left_out_and_the_task_is_told(bench: Bench) -> None:
    ended = await bench.run("t", "env", env={"LD_PRELOAD": "/tmp/evil.so"})
    assert ended.succeeded
    assert "LD_PRELOAD" not in environment_of(bench, "t")
    assert bench.stream("t", "stderr") == "hetsched: LD_PRELOAD is not passed on here (agent.env_deny)\n"


async def test_a_task_without_workdir_has_one_of_its_own(bench: Bench, tmp_path: Path) -> None:
    await bench.run("t", "sh", "-c", "pwd; echo x > y")
    assert bench.stream("t").strip().endswith("/tasks/t.1/work")
    await bench.run("u", "pwd", workdir=str(tmp_path))
    assert bench.stream("u").strip() == str(tmp_path)


async def test_arguments_are_arguments_and_no_shell_looks_at_them(bench: Bench) -> None:
    await bench.run("t", "echo", "$HOME; echo", "*", "")
    assert bench.stream("t") == "$HOME; echo * \n"


# ---------------------------------------------------------------------- user


@as_root
def test_root_runs_tasks_as_somebody_else_unless_allowed() -> None:
    safe = account_for(Policy(), None)
    assert (safe.name, safe.switch) == ("nobody", True)
    assert account_for(Policy(allow_root=True), None).uid == 0
    with pytest.raises(Refusal, match="allow_root"):
        account_for(Policy(), "root")
    with pytest.raises(Refusal, match="allow_root"):
        account_for(Policy(users=("root",)), "0")


@as_root
def test_a_task_may_name_only_listed_users() -> None:
    with pytest.raises(Refusal, match="there is no user nobody-of-that-name"):
        account_for(Policy(), "nobody-of-that-name")
    with pytest.raises(Refusal, match=r"agent\.users"):
        account_for(Policy(), "daemon")
    assert account_for(Policy(users=("daemon",)), "daemon").name == "daemon"
    assert account_for(Policy(), "nobody").name == "nobody"


def test_an_agent_that_is_not_root_runs_tasks_as_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy.os, "geteuid", lambda: 65534)
    own = account_for(Policy(), None)
    assert (own.uid, own.switch) == (65534, False)
    assert account_for(Policy(), own.name) == own
    with pytest.raises(Refusal, match="cannot become root"):
        account_for(Policy(allow_root=True), "root")


@as_root
async def test_another_user_gets_its_groups_a_home_and_a_directory_that_it_can_write(data_dir: Path) -> None:
    async with open_bench(data_dir, policy=Policy()) as bench:
        ended = await bench.run(
            "t", "sh", "-c", "echo bad > /dev/stderr; id -un; id -Gn; cd $HOME && echo x > mine && cat mine; pwd"
        )
        assert ended.succeeded, bench.stream("t", "stderr")
        user, groups, written, home = bench.stream("t").splitlines()
        assert (user, groups, written) == ("nobody", "nogroup", "x")
        assert bench.stream("t", "stderr") == "bad\n"
        assert home.endswith("/tasks/t.1/work")
        assert bench.spool.path(Key("t", 1)).stat().st_uid == 0


@as_root
async def test_another_user_cannot_read_what_the_agent_keeps(data_dir: Path) -> None:
    async with open_bench(data_dir, policy=Policy()) as bench:
        files = "../life ../../../ledger ../../../lease"
        ended = await bench.run("t", "sh", "-c", f"cat {files}; ls ..; echo x > ../stop")
        assert not ended.succeeded
        assert bench.stream("t") == ""
        assert bench.stream("t", "stderr").count("ermission denied") == 5


# ---------------------------------------------------------------------- programs


def test_only_listed_programs_run_whatever_they_are_called(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "bin"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    link.symlink_to(real)
    rules = Policy(executables=(f"{tmp_path}/re*",))
    assert executable_for(rules, str(link), {}, None) == str(real)
    assert executable_for(rules, "bin", {"PATH": f"relative:{tmp_path}"}, None) == str(real)
    assert executable_for(rules, "./bin", {}, str(tmp_path)) == str(real)
    assert executable_for(Policy(), "anything", {}, None) is None
    with pytest.raises(Refusal, match="not among the programs"):
        executable_for(rules, "sh", {"PATH": "/bin"}, None)
    with pytest.raises(Refusal, match="No such file"):
        executable_for(rules, "./bin", {}, None)


def test_the_environment_is_made_of_the_order_alone() -> None:
    account = account_for(Policy(allow_root=True), None)
    env, notes = isolation.environment(
        order("t", "true", env={"GLIBC_TUNABLES": "x"}), policy=Policy(), account=account, node="n", url="u", devices={}
    )
    assert "GLIBC_TUNABLES" not in env and len(notes) == 1
    assert env["HOME"] == account.home
