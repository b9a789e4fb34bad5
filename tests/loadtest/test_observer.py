"""The observer reads the event stream however it is cut, and believes the first placement only."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.model import runs
from hetsched.model.ids import Ids
from loadtest import report, server, tally
from loadtest.board import Board
from loadtest.mix import read_mix
from loadtest.observer import Lost, Observer, Watch


def moves(seq: int, *events: tuple[str, str]) -> bytes:
    """What happened to whom, as one run."""
    count = len(events)
    names = ("running", "placed", "succeeded")
    return runs.frame(
        runs.Moves(
            seq,
            1,
            names,
            bytes(names.index(event) for event, _ in events),
            Ids.of([task for _, task in events]),
            b"\1\0" * count,
            ("batch",),
            bytes(count),
            bytes(4 * count),
            {0: ("n", ())},
            bytes(count),
        )
    )


def single(seq: int, event: str, task: str) -> bytes:
    return runs.frame(runs.Single(seq, {"seq": seq, "event": event, "task": task}))


STREAM = (
    runs.KEEP_ALIVE
    + runs.frame(runs.Queued(6, 1, Ids.of(["loadx.0.0", "loadx.0.1"])))
    + moves(8, ("placed", "loadx.0.1"), ("placed", "other"), ("running", "loadx.0.7"), ("placed", "loadx.0.2-3"))
    + runs.KEEP_ALIVE
    + single(12, "placed", "loadx.0.6")
    + moves(13, ("succeeded", "loadx.0.1"), ("placed", "else-3"))
    + single(15, "requeued", "loadx.0.4")
)


@pytest.mark.parametrize("piece", [1, 7, 64, 10_000])
def test_any_cut_of_the_stream_reads_the_same(tmp_path: Path, piece: int) -> None:
    observer = Observer(Watch("h", 1, "t", "loadx", tmp_path, 1, 8, ends=True))
    for at in range(0, len(STREAM), piece):
        observer.read(STREAM[at : at + piece], 1000 + at)
    board = Board(tmp_path, 0, 8)
    assert [row for row in range(8) if board.placed[row]] == [1, 5, 6]
    assert [row for row in range(8) if board.ended[row]] == [1]
    assert observer.last_seq == 15


def test_a_second_placement_is_of_another_attempt(tmp_path: Path) -> None:
    observer = Observer(Watch("h", 1, "t", "loadx", tmp_path, 1, 8))
    observer.read(STREAM, 5)
    observer.read(STREAM, 9)
    board = Board(tmp_path, 0, 8)
    assert board.placed[1] == board.placed[6] == 5 and not board.ended.any()


def test_who_reads_too_slowly_is_told_what_is_lost(tmp_path: Path) -> None:
    observer = Observer(Watch("h", 1, "t", "loadx", tmp_path, 1, 8))
    with pytest.raises(Lost):
        observer.read(runs.frame(runs.Single(0, {"event": "gone", "problem": {}})), 5)


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
