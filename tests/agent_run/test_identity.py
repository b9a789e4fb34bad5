"""Whom an agent has obeyed, its lease file, and its directory's names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hetsched.agent.attempts import Key
from hetsched.agent.identity import Identity
from hetsched.agent.main import agent_directory
from hetsched.agent.shim import files, lease, processes
from hetsched.agent.spool import directory_name
from hetsched.errors import ConfigError


def test_the_highest_epoch_outlives_the_agent(data_dir: Path) -> None:
    first = Identity(data_dir)
    assert first.refusal("c", 3, holds_attempts=True) == ""
    first.obey("c", 3)
    first.close()
    second = Identity(data_dir)
    assert (second.cluster, second.highest_epoch) == ("c", 3)
    assert "a newer daemon leads" in second.refusal("c", 2, holds_attempts=False)
    assert second.refusal("c", 3, holds_attempts=True) == ""
    second.close()


def test_another_cluster_is_refused_with_the_way_out_as_long_as_something_is_held(data_dir: Path) -> None:
    identity = Identity(data_dir)
    identity.obey("c1", 9)
    assert f"remove {data_dir}" in identity.refusal("c2", 1, holds_attempts=True)
    assert identity.refusal("c2", 1, holds_attempts=False) == ""
    identity.obey("c2", 1)
    assert identity.refusal("c2", 1, holds_attempts=True) == ""
    identity.close()


def test_a_directory_has_one_agent(data_dir: Path) -> None:
    first = Identity(data_dir)
    with pytest.raises(ConfigError, match="in use by another agent"):
        Identity(data_dir)
    first.close()
    Identity(data_dir).close()


def test_names_stay_inside_and_long_ones_are_hashed(data_dir: Path) -> None:
    assert directory_name(Key("a/b:c", 2)) == "a%2Fb%3Ac.2"
    assert directory_name(Key("..", 1)) == "...1"
    long = directory_name(Key("/" * 128, 1))
    assert long.startswith("sha256-") and len(long) < 100
    assert agent_directory(data_dir, "../x").relative_to(data_dir) == Path("agent/..%2Fx")


def test_a_directory_that_is_named_from_here_is_found_from_anywhere(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shims work in `/`: with `hetsched agent --data here` no task ever started."""
    monkeypatch.chdir(data_dir)
    assert agent_directory(Path("here"), "n") == data_dir / "here" / "agent" / "n"


def test_the_lease_only_moves_forward_and_a_broken_file_is_no_lease(data_dir: Path) -> None:
    kept = lease.Lease(str(data_dir / "lease"))
    assert kept.deadline_ns == 0
    kept.extend(500)
    kept.extend(400)
    assert kept.deadline_ns == 500
    with (data_dir / "lease").open("r+b") as file:
        assert lease.read_deadline(file.fileno()) == 500
        file.write(b"\1")
        file.flush()
        assert lease.read_deadline(file.fileno()) == 0
    kept.close()


def test_nobody_reads_half_a_file(data_dir: Path) -> None:
    directory = files.open_directory(str(data_dir))
    files.write_whole(directory, "x.json", {"first": True}, durable=True)
    assert files.read_whole(directory, "x.json") == {"first": True}
    (data_dir / "y.json").write_text('{"half":')
    assert files.read_whole(directory, "y.json") is None
    assert files.read_whole(directory, "z.json") is None


def test_a_process_is_named_by_pid_and_start_time() -> None:
    import os

    own = processes.start_time(os.getpid())
    assert own is not None and processes.is_alive(os.getpid(), own)
    assert not processes.is_alive(os.getpid(), own + 1)


def test_agents_that_begin_together_share_their_data_directory(data_dir: Path) -> None:
    names = [f"n{i}" for i in range(16)]
    with ThreadPoolExecutor(16) as threads:
        paths = list(threads.map(lambda name: agent_directory(data_dir / "new", name), names))
    assert {path.name for path in paths} == set(names)


def test_an_agent_is_known_by_its_directory_across_restarts_and_epochs(data_dir: Path, tmp_path: Path) -> None:
    first = Identity(data_dir)
    instance = first.instance
    first.obey("c1", 5)
    first.close()
    again = Identity(data_dir)
    assert (again.instance, again.cluster, again.highest_epoch) == (instance, "c1", 5) and instance
    (tmp_path / "other").mkdir()
    other = Identity(tmp_path / "other")
    assert other.instance != instance
    other.close()
    again.close()
