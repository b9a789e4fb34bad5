"""The client: what it repeats and what it must not, where it finds the daemon, the same for asyncio."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hetsched.client import Client, Unreachable, address
from hetsched.client.aio import AsyncClient
from hetsched.errors import Conflict, NotFound, Problem, Unauthenticated, Unavailable
from tests.cli.fake_daemon import TOKEN, FakeDaemon


def client_of(daemon: FakeDaemon, patience_s: float = 5.0) -> Client:
    return Client(daemon.url, TOKEN, patience_s=patience_s, reach_s=0.0)


def test_what_may_not_be_repeated_is_not(daemon: FakeDaemon) -> None:
    daemon.add("t")
    daemon.faults = ["drop"]
    with pytest.raises(Unreachable) as caught:
        client_of(daemon).operate("requeue", "t")
    assert caught.value.sent
    assert len(daemon.asked) == 1


def test_standing_by_is_waited_for_and_in_the_end_told(daemon: FakeDaemon) -> None:
    daemon.add("t")
    daemon.faults = ["standby"] * 2
    assert client_of(daemon).operate("hold", "t")["asked"] == "hold"
    daemon.faults = ["standby"] * 50
    with pytest.raises(Unavailable, match="recovering"):
        client_of(daemon, patience_s=0.2).task("t")


def test_each_of_several_is_asked_with_whatever_patience(daemon: FakeDaemon) -> None:
    daemon.add("t")
    dead = "http://127.0.0.1:1"
    for urls in (f"{dead},{daemon.url}", f"{daemon.url},{dead}", f"{dead},http://127.0.0.1:2,{daemon.url}"):
        assert Client(urls, TOKEN, patience_s=0.0).task("t")["id"] == "t"
    with pytest.raises(Unreachable):
        Client(f"{dead},{dead}", TOKEN, patience_s=0.0).task("t")
    daemon.faults = ["drop"]
    with pytest.raises(Unreachable) as caught:
        Client(f"{daemon.url},{dead}", TOKEN, patience_s=0.0).operate("requeue", "t")
    assert caught.value.sent, "it may have been done"


def test_a_kept_connection_that_has_gone_is_opened_again(daemon: FakeDaemon) -> None:
    daemon.add("t")
    client = client_of(daemon, patience_s=0.0)
    client.task("t")
    daemon.faults = ["drop"]
    assert client.task("t")["id"] == "t"


def test_refusals_are_errors_of_the_one_tree(daemon: FakeDaemon) -> None:
    daemon.add("done", "succeeded")
    client = client_of(daemon)
    with pytest.raises(NotFound):
        client.task("nobody")
    with pytest.raises(Conflict):
        client.cancel("done")
    with pytest.raises(Problem) as caught:
        client.submit({"resources": {"memory": "16Gib"}})
    assert caught.value.errors == [{"pointer": "/resources/memory", "detail": "unknown suffix 'Gib'"}]
    with pytest.raises(Unauthenticated):
        Client(daemon.url, "another").task("done")


def test_ids_with_slashes_are_one_segment(daemon: FakeDaemon) -> None:
    daemon.add("a/b:c")
    assert client_of(daemon).task("a/b:c")["id"] == "a/b:c"


async def test_the_same_for_asyncio(daemon: FakeDaemon) -> None:
    client = AsyncClient(client_of(daemon))
    assert (await client.call(Client.submit, {"id": "t"}))["id"] == "t"
    daemon.looks["t"] = ["running", "succeeded"]
    assert [task["state"] for task in await client.call(Client.wait, ["t"])] == ["succeeded"]


def test_the_address_flag_before_environment_before_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSCHED_URL", raising=False)
    monkeypatch.delenv("HETSCHED_TOKEN", raising=False)
    monkeypatch.setenv("HETSCHED_DATA", str(tmp_path))
    assert address.find() == (address.DEFAULT_URL, None)
    (tmp_path / "url").write_text("http://127.0.0.1:1\n")
    (tmp_path / "token").write_text("local\n")
    assert address.find() == ("http://127.0.0.1:1", "local")
    monkeypatch.setenv("HETSCHED_URL", "http://elsewhere:2/")
    assert address.find() == ("http://elsewhere:2", None), "the local daemon's token is not for another"
    monkeypatch.setenv("HETSCHED_TOKEN", "mine")
    assert address.find() == ("http://elsewhere:2", "mine")
    assert address.find("http://flag:3", "flag") == ("http://flag:3", "flag")


def test_a_daemon_that_is_just_starting_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hetsched serve --data D & hetsched submit …` in one breath."""
    monkeypatch.delenv("HETSCHED_URL", raising=False)
    monkeypatch.delenv("HETSCHED_TOKEN", raising=False)
    monkeypatch.setenv("HETSCHED_DATA", str(tmp_path))

    def start() -> None:
        (tmp_path / "token").write_text("local\n")
        (tmp_path / "url").write_text("http://127.0.0.1:1\n")

    timer = threading.Timer(0.2, start)
    timer.start()
    assert address.find_soon(None, None, None) == ("http://127.0.0.1:1", "local")
    timer.join()
    with pytest.raises(Unreachable, match="no daemon listens"):
        address.find_soon(None, None, str(tmp_path / "elsewhere"), patience_s=0.1)
    assert address.find_soon("http://flag:3", None, str(tmp_path / "elsewhere")).url == "http://flag:3"
