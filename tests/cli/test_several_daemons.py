"""The client among several daemons: it finds the one that leads, follows it, and takes nothing older for new."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from hetsched.client import Client, Unreachable
from hetsched.client.places import Places
from hetsched.errors import ConfigError
from tests.cli.conftest import Said
from tests.cli.fake_daemon import TOKEN, FakeDaemon


@pytest.fixture
def other() -> Iterator[FakeDaemon]:
    fake = FakeDaemon()
    yield fake
    fake.close()


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def client_of(*urls: str, patience_s: float = 5.0) -> Client:
    return Client(",".join(urls), TOKEN, patience_s=patience_s, reach_s=0.0)


def test_a_submission_that_a_standby_refused_goes_to_the_leader_under_the_same_key(
    daemon: FakeDaemon, other: FakeDaemon
) -> None:
    daemon.faults = [other.url]
    client = client_of(daemon.url)
    assert client.submit({"id": "t", "resources": {}})["id"] == "t"
    assert (client.url, list(other.tasks), list(daemon.tasks)) == (other.url, ["t"], [])
    keys = {asked[3]["Idempotency-Key"] for fake in (daemon, other) for asked in fake.asked}
    assert len(keys) == 1


def test_a_change_that_may_not_be_repeated_goes_on_too_because_it_did_nothing(
    daemon: FakeDaemon, other: FakeDaemon
) -> None:
    other.add("t")
    daemon.faults = [other.url]
    assert client_of(daemon.url).operate("hold", "t")["asked"] == "hold"


def test_a_leader_that_is_gone_is_looked_for_at_all_addresses(daemon: FakeDaemon, other: FakeDaemon) -> None:
    daemon.add("t")
    client = client_of(nobody(), other.url, daemon.url)
    other.faults = [nobody(), "standby"]
    assert client.task("t")["id"] == "t"
    assert client.url == daemon.url


def test_what_one_says_of_itself_delays_nobody_at_another_and_a_pause_comes_when_all_were_asked(
    daemon: FakeDaemon, other: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused_s: list[float] = []
    monkeypatch.setattr("hetsched.client.transport.time.sleep", paused_s.append)
    other.add("t")
    daemon.add("t")
    daemon.faults, other.faults = ["away"] * 3, ["away"] * 2
    client = client_of(daemon.url, other.url)
    assert client.task("t")["id"] == "t"
    assert (client.url, len(daemon.asked), len(other.asked)) == (other.url, 3, 3)
    assert [pause_s >= 0.5 for pause_s in paused_s] == [False, True, False, True, False]


def test_one_address_is_given_up_as_before(daemon: FakeDaemon) -> None:
    with pytest.raises(Unreachable):
        client_of(nobody()).task("t")


def test_a_standbys_answer_is_taken_only_while_there_is_no_leader(daemon: FakeDaemon, other: FakeDaemon) -> None:
    daemon.add("t", "queued")
    other.add("t", "running")
    daemon.leader = other.url
    client = client_of(daemon.url)
    assert client.task("t")["state"] == "running"
    assert client.url == other.url
    daemon.leader = nobody()
    assert client_of(daemon.url).task("t")["state"] == "queued"


def test_no_leader_is_followed_from_tls_to_clear_text() -> None:
    places = Places("https://a:1")
    assert not places.follow("http://b:2", places.present)
    assert not places.follow("ftp://b:2", places.present)
    assert places.follow("https://b:2/", places.present) and places.present.url == "https://b:2"
    with pytest.raises(ConfigError):
        Places("http://a:1,not an address")


def test_the_command_line_takes_several(daemon: FakeDaemon, call: Callable[..., Said]) -> None:
    daemon.add("t", "running")
    said = call("show", "t", "--url", f"{nobody()},{daemon.url}", "--json")
    assert said.code == 0 and '"running"' in said.out


def test_streams_go_on_at_the_leader(daemon: FakeDaemon, other: FakeDaemon) -> None:
    other.logs["t"] = b"said there"
    daemon.faults = [other.url]
    assert b"".join(client_of(daemon.url).logs("t")) == b"said there"


def test_a_silent_leader_is_waited_for_unless_another_one_leads(
    daemon: FakeDaemon, other: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.client.transport._SILENCE_S", 0.1)
    client = client_of(daemon.url, other.url)
    daemon.faults, other.ready = ["slow"], False
    assert client.submit({"id": "t", "resources": {}})["id"] == "t"
    assert (client.url, len(daemon.asked)) == (daemon.url, 1), "it had much to do"
    daemon.faults, other.ready = ["slow"], True
    assert client.submit({"id": "u", "resources": {}})["id"] == "u"
    assert list(other.tasks) == ["u"], "it was frozen"
