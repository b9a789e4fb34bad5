"""The observer reads the event stream however it is cut, and believes the first placement only."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest import report, server, tally
from loadtest.board import Board
from loadtest.mix import read_mix
from loadtest.observer import Observer, Watch

STREAM = (
    b": hello\n\n"
    b'id: 7\ndata: {"seq":7,"t":1.0,"event":"queued","task":"loadx.0.0"}\n\n'
    b'id: 8\ndata: {"seq":8,"t":1.0,"event":"placed","task":"loadx.0.1","attempt":1,"node":"n"}\n\n'
    b'id: 9\ndata: {"seq":9,"t":1.0,"event":"placed","task":"other","attempt":1}\n\n'
    b'id: 10\ndata: {"seq":10,"t":1.0,"event":"placed","task":"loadx.0.2-3","attempt":1}\n\n'
    b'id: 11\ndata: {"seq":11,"t":1.0,"event":"requeued","task":"loadx.0.4","reason":"\\"placed\\""}\n\n'
)


@pytest.mark.parametrize("piece", [1, 7, 64, 10_000])
def test_any_cut_of_the_stream_reads_the_same(tmp_path: Path, piece: int) -> None:
    observer = Observer(Watch("h", 1, "t", "loadx", tmp_path, 1, 8))
    for at in range(0, len(STREAM), piece):
        observer.read(STREAM[at : at + piece], 1000 + at)
    placed = Board(tmp_path, 0, 8).placed
    assert [row for row in range(8) if placed[row]] == [1, 5]
    assert observer.last_id == b"11"


def test_a_second_placement_is_of_another_attempt(tmp_path: Path) -> None:
    observer = Observer(Watch("h", 1, "t", "loadx", tmp_path, 1, 8))
    observer.read(STREAM, 5)
    observer.read(STREAM, 9)
    assert Board(tmp_path, 0, 8).placed[1] == 5


def test_what_was_never_placed_counts_as_waiting_to_the_end(tmp_path: Path) -> None:
    """A server that stops placing must not look faster for it."""
    board = Board(tmp_path, 0, 8)
    board.intended[:4] = [100, 100, 100, 100]
    board.sent[:4] = 110
    board.acknowledged[:3] = 120
    board.answered[0] = 150
    board.placed[:2] = [160, 200]
    results = [{"outcomes": {"202": 3, "429": 1}, "rejected": 0}]
    figures = tally.figures([tally.tally_of([board], results, read_mix("cpu"), start_ns=0, end_ns=1000, now_ns=1100)])
    assert figures["scheduling"]["max_ms"] == pytest.approx(1000 / 1e6)
    assert figures["scheduling"]["mean_ms"] == pytest.approx((50 + 100 + 1000) / 3 / 1e6)
    assert figures["achieved"]["unplaced"] == 1
    assert figures["errors"]["rate"] == 0.25
    assert "left waiting" in report.table(figures)


def test_load_is_for_this_machine_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.Server, "get", lambda self, path: {})
    for url in ("http://10.0.0.7:80", "http://example.org", "https://127.0.0.1:1"):
        with pytest.raises(server.ServerError):
            server.existing(url, token="t", agent_token="", foreign_allowed=False)
    assert server.existing("http://[::1]:90/", token="t", agent_token="", foreign_allowed=False).port == 90
