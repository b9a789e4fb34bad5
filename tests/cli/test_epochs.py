"""A leader that was replaced and does not know it answers with its own epoch: a client that has heard a higher one asks on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hetsched.client import Client
from hetsched.errors import Unavailable


class Leader:
    """Answers everything with its epoch, while it is there."""

    def __init__(self) -> None:
        leader = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = b'{"epoch": %d}' % leader.epoch
                self.send_response((307 if leader.elsewhere else 200) if leader.answers else 503)
                self.send_header("Hetsched-Epoch", str(leader.epoch))
                if leader.cell:
                    self.send_header("Hetsched-Cell", leader.cell)
                if leader.elsewhere:
                    self.send_header("Location", leader.elsewhere + self.path)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                return None

        self.epoch, self.answers, self.cell, self.elsewhere = 0, True, "", ""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextmanager
def two() -> Iterator[tuple[Leader, Leader]]:
    leaders = Leader(), Leader()
    try:
        yield leaders
    finally:
        for leader in leaders:
            leader.server.shutdown()
            leader.server.server_close()


def test_a_client_is_not_told_something_older_than_what_it_was_told() -> None:
    with two() as (first, second):
        first.epoch, second.epoch = 5, 4
        client = Client(f"{first.url},{second.url}", "t", patience_s=0.6, reach_s=0.6)
        assert client.cluster()["epoch"] == 5
        first.answers = False
        with pytest.raises(Unavailable):
            client.cluster()
        second.epoch = 6
        assert client.cluster()["epoch"] == 6


def test_after_a_minute_a_lower_epoch_is_that_of_a_store_that_was_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    with two() as (first, second):
        first.epoch = second.epoch = 5
        client = Client(first.url, "t", patience_s=0.2)
        assert client.cluster()["epoch"] == 5
        first.epoch = 2
        monkeypatch.setattr("hetsched.client.transport._DEPOSED_S", 0.0)
        assert client.cluster()["epoch"] == 2


def test_each_cell_counts_its_own_epochs() -> None:
    with two() as (home, other):
        home.cell, home.epoch, home.elsewhere = "a", 5, other.url
        other.cell, other.epoch = "b", 2
        client = Client(home.url, "t", patience_s=0.2)
        assert client.task("sent")["epoch"] == 2
        assert client.task("sent")["epoch"] == 2
        other.epoch = 1
        with pytest.raises(Unavailable):
            client.task("sent")
