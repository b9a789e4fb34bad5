"""`hetsched doctor`: every line has its verdict, and every one that is not ok its fix."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from hetsched.cli import main
from hetsched.doctor import Check, Verdict, isolation, journal, machine, serving
from tests.daemon.process import DaemonProcess
from tests.store.clustered import Cluster
from tests.store.helpers import Server, config, opened_store
from tests.store.sentinels import Watched


def by_name(checks: Iterable[Check]) -> dict[str, Check]:
    found = {check.name: check for check in checks}
    for check in found.values():
        assert check.found and bool(check.fix) == (check.verdict is not Verdict.OK), check
    return found


def test_the_whole_report_ends_with_1_only_where_something_fails(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", "--data", str(data_dir), "--listen", "127.0.0.1:0", "--json"])
    told = json.loads(capsys.readouterr().out)
    failed = [check["name"] for check in told["checks"] if check["verdict"] == "fail"]
    assert code == (1 if failed else 0) and told["ok"] == (not failed)
    names = {check["name"] for check in told["checks"]}
    assert {"python", "core", "fsync", "disk space", "clock", "open files", "cgroup", "port", "token"} <= names
    assert not list(data_dir.iterdir()), "it leaves nothing behind"
    main(["doctor", "--data", str(data_dir), "--listen", "127.0.0.1:0"])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split()[0] in ("ok", "warn", "fail") for line in lines if not line.startswith("      "))


def test_this_interpreter_and_its_core_are_fit() -> None:
    assert machine.python().verdict is Verdict.OK
    assert machine.core().verdict in (Verdict.OK, Verdict.WARN)


def test_the_disk_is_timed_where_the_data_would_be(tmp_path: Path) -> None:
    found = by_name(machine.directory(tmp_path / "not" / "made" / "yet"))
    assert "not made yet" in found["data directory"].found and "p99" in found["fsync"].found
    assert list(tmp_path.iterdir()) == []


def test_clocks_limits_and_isolation_are_told_of() -> None:
    assert set(by_name(machine.clocks())) == {"clock", "time synchronisation"}
    assert set(by_name(machine.limits())) == {"open files", "processes"}
    assert set(by_name(isolation.checks(Path("/")))) == {"cgroup", "namespaces"}


def test_a_port_in_use_and_a_token_that_others_can_read_are_failures(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = by_name(serving.checks(tmp_path, f"127.0.0.1:{taken.getsockname()[1]}"))
    assert found["port"].verdict is Verdict.FAIL and "--listen" in found["port"].fix
    assert found["token"].fix == f"chmod 600 {tmp_path / 'token'}"
    assert found["agent-token"].verdict is Verdict.OK


def test_beyond_this_machine_it_asks_for_tls(tmp_path: Path) -> None:
    port = by_name(serving.checks(tmp_path, "0.0.0.0:0"))["port"]
    assert port.verdict is Verdict.WARN and "server.tls_cert" in port.fix


def test_a_daemon_that_runs_here_has_its_port_by_right(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        found = by_name(serving.checks(data_dir, f"127.0.0.1:{daemon.port}"))
        assert "is ready" in found["daemon"].found and found["port"].verdict is Verdict.OK


async def test_a_file_that_the_journal_server_would_not_load_is_found_without_it(data_dir: Path) -> None:
    async with opened_store("embedded:", data_dir) as (store, _):
        await store.append(b"frame")
    assert by_name(journal.checks(config(), data_dir, "embedded:"))["journal file"].verdict is Verdict.OK
    (file,) = (data_dir / "valkey" / "appendonlydir").glob("*.incr.aof")
    file.write_bytes(file.read_bytes().replace(b"XADD", b"XADE"))
    found = by_name(journal.checks(config(), data_dir, "embedded:"))["journal file"]
    assert found.verdict is Verdict.FAIL and f"truncate --data {data_dir} --at byte:" in found.fix


# ---------------------------------------------------------------------- a server of one's own


async def asked(server: Server, **store: str) -> dict[str, Check]:
    import asyncio

    return by_name(await asyncio.to_thread(lambda: list(journal.checks(config(**store), Path("/"), server.url))))


async def test_a_server_that_syncs_always_and_throws_nothing_away_is_fit(server: Server) -> None:
    found = await asked(server)
    assert {name: check.verdict for name, check in found.items()} == {
        "store": Verdict.OK,
        "appendfsync": Verdict.OK,
        "maxmemory-policy": Verdict.OK,
    }


async def test_a_server_that_may_lose_or_throw_away_is_a_failure_with_the_commands(server: Server) -> None:
    await server.client.config_set("appendfsync", "everysec")
    await server.client.config_set("maxmemory", "100mb")
    await server.client.config_set("maxmemory-policy", "allkeys-lru")
    found = await asked(server)
    assert found["appendfsync"].verdict is found["maxmemory-policy"].verdict is Verdict.FAIL
    assert "CONFIG SET appendfsync always" in found["appendfsync"].fix
    assert "noeviction" in found["maxmemory-policy"].fix
    assert (await asked(server, durability="relaxed"))["appendfsync"].verdict is Verdict.WARN


def test_a_server_that_is_not_there_is_a_failure() -> None:
    found = by_name(journal.checks(config(), Path("/"), "redis://127.0.0.1:1"))
    assert found["store"].verdict is Verdict.FAIL and "does not answer" in found["store"].found


def test_a_cluster_is_fit_where_every_slot_has_a_replica_and_one_that_is_lost_stops_no_other(data_dir: Path) -> None:
    cluster = Cluster(data_dir)
    try:
        cluster.start()
        settings = config(cell="a", durability="replicated")

        def found() -> dict[str, Check]:
            return by_name(journal.checks(settings, data_dir, cluster.url))

        assert {check.verdict for check in found().values()} == {Verdict.OK}
        assert "6 nodes answer, 3 of them primaries" in found()["store"].found
        primary = cluster.primary_of("a")
        primary.client.config_set("cluster-require-full-coverage", "yes")
        cluster.replica_of(primary).kill()
        after = found()
        assert after["cluster slot"].verdict is Verdict.FAIL and "with 0 replicas" in after["cluster slot"].found
        assert after["cluster nodes"].verdict is Verdict.WARN
        assert after["cluster-require-full-coverage"].verdict is Verdict.WARN
    finally:
        cluster.close()


def test_sentinels_are_asked_one_by_one_and_the_primary_that_they_name(data_dir: Path) -> None:
    watched = Watched(data_dir)
    try:
        watched.start()
        found = by_name(journal.checks(config(durability="replicated"), data_dir, watched.url))
        assert found["sentinel"].verdict is Verdict.OK and "3 of 3" in found["sentinel"].found
        assert found["appendfsync"].verdict is Verdict.OK and "store.durability" not in found
        watched.sentinels[0].kill()
        checks = list(journal.checks(config(), data_dir, watched.url))
        assert [check.verdict for check in checks if check.name == "sentinel"] == [Verdict.WARN, Verdict.OK]
        assert by_name(checks)["store.durability"].verdict is Verdict.WARN
        watched.sentinels[1].kill()
        last = [check for check in journal.checks(config(), data_dir, watched.url) if check.name == "sentinel"][-1]
        assert last.verdict is Verdict.FAIL and "replace nobody" in last.found
        watched.sentinels[2].kill()
        assert {check.verdict for check in journal.checks(config(), data_dir, watched.url)} == {Verdict.FAIL}
    finally:
        watched.close()
    assert by_name(journal.checks(config(), data_dir, "redis+sentinel://h"))["store"].verdict is Verdict.FAIL
