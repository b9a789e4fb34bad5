"""Below HTTP's manners: raw sockets that send too much, too slowly, too many, or something that is no HTTP at all."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from tests.daemon.process import DaemonProcess, drain

TASK = b'{"resources": {"cpu": 1}}'


def head(daemon: DaemonProcess, *lines: str, method: str = "POST", path: str = "/v1/schedule") -> bytes:
    """A request's head with a good token; `lines` are further headers."""
    all_lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {daemon.token}",
        "Content-Type: application/json",
        *lines,
        "",
        "",
    ]
    return "\r\n".join(all_lines).encode()


def problem(answer: bytes) -> dict[str, object]:
    """The problem in a raw answer."""
    top, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in top.lower(), answer[:500]
    found: dict[str, object] = json.loads(body)
    assert str(found["status"]).encode() in top.split(b"\r\n")[0]
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\nhello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: abc\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999999\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 10_000 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes(range(256)) * 4,
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n",
    ],
    ids=lambda data: ascii(data[:40]),
)
def test_what_is_no_http_is_answered_as_a_problem_and_closed(daemon: DaemonProcess, data: bytes) -> None:
    assert 400 <= int(str(problem(daemon.raw(data, timeout_s=3))["status"])) < 500


def test_http_1_1_demands_a_host(daemon: DaemonProcess) -> None:
    assert problem(daemon.raw(b"GET /healthz HTTP/1.1\r\n\r\n"))["status"] == 400
    assert daemon.raw(b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200")


# ---------------------------------------------------------------------- too much


def test_a_body_announced_as_too_large_is_refused_before_it_is_sent(daemon: DaemonProcess) -> None:
    began = time.monotonic()
    assert problem(daemon.raw(head(daemon, "Content-Length: 104857600")))["status"] == 413
    assert time.monotonic() - began < 1


def test_a_hundred_megabytes_that_are_really_sent_are_refused_and_not_kept(daemon: DaemonProcess) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=20) as connection:
        connection.sendall(head(daemon, "Content-Length: 104857600"))
        try:
            for _ in range(100):
                connection.sendall(b" " * (1 << 20))
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert problem(drain(connection))["status"] == 413
    peak_kb = next(
        int(line.split()[1])
        for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert peak_kb < 400_000, "the body was held in memory"


def test_a_chunked_body_without_end_is_cut_at_the_limit(daemon: DaemonProcess) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as connection:
        connection.sendall(head(daemon, "Transfer-Encoding: chunked"))
        try:
            for _ in range(40):
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert problem(drain(connection))["status"] == 413


def test_a_chunked_body_within_the_limit_is_a_body(daemon: DaemonProcess) -> None:
    answer = daemon.raw(head(daemon, "Transfer-Encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(TASK), TASK))
    assert answer.startswith(b"HTTP/1.1 202")


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"-1\r\n", b"5\r\nhelloworld\r\n", b"ffffffffffffffffff\r\n"])
def test_broken_chunks_are_refused(daemon: DaemonProcess, chunk: bytes) -> None:
    answer = daemon.raw(head(daemon, "Transfer-Encoding: chunked") + chunk, timeout_s=5)
    assert answer.split(b" ")[1].startswith(b"4"), answer[:200]


def test_expect_100_continue_is_honoured(daemon: DaemonProcess) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as connection:
        connection.sendall(head(daemon, "Expect: 100-continue", f"Content-Length: {len(TASK)}"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(TASK)
        assert drain(connection).startswith(b"HTTP/1.1 202")


# ---------------------------------------------------------------------- too slowly


@pytest.mark.parametrize("beginning", [b"", b"GET", b"GET /healthz HTTP/1.1\r\nHost: loc"])
def test_a_head_that_never_ends_is_cut_off(daemon: DaemonProcess, beginning: bytes) -> None:
    began = time.monotonic()
    answer = daemon.raw(beginning, timeout_s=5)
    assert problem(answer)["status"] == 408
    assert 0.5 < time.monotonic() - began < 3


def test_a_head_that_trickles_is_cut_off_all_the_same(daemon: DaemonProcess) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        try:
            while time.monotonic() - began < 4:
                connection.sendall(b"X-A: b\r\n")
                time.sleep(0.1)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert time.monotonic() - began < 3


def test_the_second_head_on_a_connection_has_its_deadline_too_and_idle_ones_do_not(daemon: DaemonProcess) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as connection:
        connection.sendall(ask)
        assert b"200" in drain(connection)
        time.sleep(1.3)
        connection.sendall(ask)
        assert b"200" in drain(connection), "idle between requests is no offence"
        connection.sendall(b"GET /hea")
        assert problem(drain(connection))["status"] == 408


def test_a_connection_may_idle_after_a_body_as_well(daemon: DaemonProcess) -> None:
    ask = head(daemon, f"Content-Length: {len(TASK)}") + TASK
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as connection:
        for _ in range(2):
            connection.sendall(ask)
            assert b" 202 " in drain(connection)
            time.sleep(1.3)


def test_a_body_that_does_not_come_is_a_408(daemon: DaemonProcess) -> None:
    began = time.monotonic()
    answer = daemon.raw(head(daemon, "Content-Length: 100") + b'{"res', timeout_s=8)
    assert problem(answer)["status"] == 408
    assert 1 < time.monotonic() - began < 5


def test_a_body_cut_short_is_no_task(daemon: DaemonProcess) -> None:
    before = len(daemon.get("/v1/tasks?limit=1000").json["tasks"])
    daemon.raw(head(daemon, "Content-Length: 100") + TASK, close_after=True, timeout_s=3)
    assert len(daemon.get("/v1/tasks?limit=1000").json["tasks"]) == before


# ---------------------------------------------------------------------- too many


def test_connections_from_one_address_are_capped_and_freed(data_dir: Path) -> None:
    with DaemonProcess(data_dir, server__connections_per_address=5) as daemon:
        held = [socket.create_connection(("127.0.0.1", daemon.port), timeout=5) for _ in range(5)]
        time.sleep(0.2)
        answer = daemon.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert problem(answer)["status"] == 429 and b"Retry-After" in answer
        for connection in held:
            connection.close()
        time.sleep(0.2)
        assert daemon.get("/healthz").status == 200


def test_many_requests_on_one_connection_are_answered_in_order(daemon: DaemonProcess) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as connection:
        connection.sendall(ask * 200)
        got = b""
        while got.count(b"HTTP/1.1 200") < 200:
            got += connection.recv(65536)


# ---------------------------------------------------------------------- half of a connection


def test_a_client_that_has_said_all_and_closed_its_half_is_still_answered(daemon: DaemonProcess) -> None:
    whole = head(daemon, f"Content-Length: {len(TASK)}") + TASK
    assert half_closed(daemon, whole).startswith(b"HTTP/1.1 202")
    both = half_closed(daemon, whole * 2)
    assert both.count(b"HTTP/1.1 202") == 2, "what was sent before the end counts, pipelined or not"


@pytest.mark.parametrize("headers", [("Content-Length: 500",), ("Transfer-Encoding: chunked",)], ids=str)
def test_a_body_cut_short_by_its_sender_is_told_so(daemon: DaemonProcess, headers: tuple[str, ...]) -> None:
    body = TASK if "500" in headers[0] else b"%x\r\n%s\r\n" % (len(TASK), TASK)
    found = problem(half_closed(daemon, head(daemon, *headers) + body))
    assert found["status"] == 400 and "whole" in str(found["detail"])


def half_closed(daemon: DaemonProcess, data: bytes) -> bytes:
    """All that is answered to a client that sends this and then only listens."""
    with socket.create_connection(("127.0.0.1", daemon.port), 5) as line:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65536), b""))


def test_an_expectation_that_is_none_is_refused_as_a_problem(daemon: DaemonProcess) -> None:
    asked = head(daemon, f"Content-Length: {len(TASK)}", "Expect: a-banana", "Connection: close") + TASK
    assert problem(daemon.raw(asked))["status"] == 417
