"""A daemon with front ends: what dies, who takes its place, and what nobody may lose by it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.daemon.agent import TestAgent
from tests.daemon.fakes import until
from tests.daemon.process import DaemonProcess, drain
from tests.front.clients import TASK, Client, metric, read, request
from tests.store.helpers import Server


@pytest.fixture
def daemon(data_dir: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(data_dir, server__workers=2) as process:
        yield process


def front_ends(daemon: DaemonProcess) -> list[psutil.Process]:
    return [each for each in psutil.Process(daemon.pid).children() if "hetsched.front" in each.cmdline()]


def known(daemon: DaemonProcess, ids: set[str]) -> set[str]:
    """Which of them the daemon has."""
    found: set[str] = set()
    cursor = ""
    while True:
        page = daemon.get(f"/v1/tasks?limit=1000{cursor}").json
        found |= {task["id"] for task in page["tasks"]} & ids
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


# ---------------------------------------------------------------------- death


def test_front_ends_that_are_killed_under_load_lose_nothing_acknowledged(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:", server__workers=2) as daemon:
        clients = [Client(daemon, f"c{number}") for number in range(6)]
        for client in clients:
            client.start()
        killed: set[int] = set()
        for _ in range(6):
            time.sleep(0.3)
            victim = next(each for each in front_ends(daemon) if each.pid not in killed)
            killed.add(victim.pid)
            victim.send_signal(signal.SIGKILL)
        time.sleep(0.5)
        for client in clients:
            client.stop.set()
        for client in clients:
            client.join()
        assert not [answer for client in clients for answer in client.refused]
        assert sum(client.cuts for client in clients) > 0, "nobody was cut off: nothing was tried"
        acknowledged = set().union(*(client.acknowledged for client in clients))
        assert len(acknowledged) > 100 and known(daemon, acknowledged) == acknowledged
        deadline_s = time.monotonic() + 10
        while metric(daemon, "hetsched_front_ends") != 2 or len(front_ends(daemon)) != 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert metric(daemon, "hetsched_front_replaced_total") == 6
        daemon.kill()
        daemon.start()
        assert known(daemon, acknowledged) == acknowledged, "and it was on disk"


def test_front_ends_end_with_the_deciding_process(daemon: DaemonProcess) -> None:
    ends = front_ends(daemon)
    assert len(ends) == 2
    daemon.kill()
    _, alive = psutil.wait_procs(ends, timeout=5)
    assert not alive


def test_what_waits_to_be_accepted_when_a_front_end_dies_is_served_by_the_next(daemon: DaemonProcess) -> None:
    for each in front_ends(daemon):
        each.suspend()
    lines = [socket.create_connection(("127.0.0.1", daemon.port), timeout=10) for _ in range(8)]
    for number, line in enumerate(lines):
        line.sendall(request(daemon, {"id": f"t{number}", **TASK}))
    for each in front_ends(daemon):
        each.kill()
    assert [drain(line)[:12] for line in lines] == [b"HTTP/1.1 202"] * 8
    for line in lines:
        line.close()


def test_sigterm_under_load_answers_what_is_under_way_and_keeps_what_it_acknowledged(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:", server__workers=2) as daemon:
        clients = [Client(daemon, f"c{number}") for number in range(4)]
        for client in clients:
            client.start()
        time.sleep(1.0)
        ends = front_ends(daemon)
        stopping = threading.Thread(target=daemon.stop)
        stopping.start()
        time.sleep(0.2)
        for client in clients:
            client.stop.set()
        stopping.join()
        for client in clients:
            client.join()
        assert daemon.process is not None and daemon.process.returncode == 0
        assert not psutil.wait_procs(ends, timeout=1)[1]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for client in clients for answer in client.refused)
        acknowledged = set().union(*(client.acknowledged for client in clients))
        daemon.start()
        assert len(acknowledged) > 20 and known(daemon, acknowledged) == acknowledged


# ---------------------------------------------------------------------- order


def test_the_order_of_a_connection_is_kept_whoever_answers(daemon: DaemonProcess) -> None:
    """Singles, a list, singles with a key (each read by aiohttp), then reads, which change its hands, then singles again."""
    said: list[bytes] = [request(daemon, {"id": f"a{number}", **TASK}) for number in range(200)]
    said += [request(daemon, [{"id": f"b{number}", **TASK} for number in range(50)])]
    said += [request(daemon, {"id": f"c{number}", **TASK}, f"Idempotency-Key: k{number}") for number in range(20)]
    said += [request(daemon, {"id": f"d{number}", **TASK}) for number in range(50)]
    said += [read(daemon, "/v1/tasks/d49")]
    said += [request(daemon, {"id": f"e{number}", **TASK}) for number in range(50)]
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as line:
        line.sendall(b"".join(said))
        line.shutdown(socket.SHUT_WR)
        answers = b"".join(iter(lambda: line.recv(65536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"202"] * 271 + [b"200"] + [b"202"] * 50
    expected = [
        f"{letter}{number}" for letter, count in zip("acde", (200, 20, 50, 50), strict=True) for number in range(count)
    ]
    assert re.findall(rb"Location: /v1/tasks/(\w+)", answers) == [ident.encode() for ident in expected]
    events = [
        json.loads(each)
        for each in re.findall(rb"^data: (.*)$", daemon.get("/v1/events?since=0&follow=false").body, re.M)
    ]
    queued = [event["task"] for event in events if event["event"] == "queued"]
    assert queued == expected[:200] + [f"b{number}" for number in range(50)] + expected[200:]


# ---------------------------------------------------------------------- what else a daemon does


async def test_agents_and_streams_are_served_by_the_deciding_process(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, {"name": "n", "cpu": 8, "memory": "8Gi"}) as agent:
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as line:
            line.sendall(read(daemon, "/v1/events?since=0"))
            assert daemon.submit({"id": "t", **TASK}).status == 202
            await until(lambda: "t" in agent.running)
            got = b""
            while b'"event":"running"' not in got:
                got += line.recv(65536)
    assert got.startswith(b"HTTP/1.1 200") and b'"event":"queued"' in got


def test_the_cap_of_connections_is_one_for_all_front_ends(data_dir: Path) -> None:
    with DaemonProcess(data_dir, server__workers=2, server__connections_per_address=10) as daemon:
        lines = [socket.create_connection(("127.0.0.1", daemon.port), timeout=10) for _ in range(16)]
        time.sleep(0.5)
        refused = 0
        for line in lines:
            line.setblocking(False)
            try:
                refused += line.recv(64).startswith(b"HTTP/1.1 429 ")
            except BlockingIOError:
                pass
            line.close()
        assert refused == 6
        deadline_s = time.monotonic() + 5
        while daemon.get("/healthz").status != 200:
            assert time.monotonic() < deadline_s, "who went away makes room"


def test_a_full_inbox_is_a_429(data_dir: Path) -> None:
    """The deciding process is frozen until all have come, so that they wait for one and the same turn."""
    sizes = {"limits__inbox_tasks": 20, "limits__array_tasks": 20, "limits__bulk_tasks": 20}
    with DaemonProcess(data_dir, server__workers=1, **sizes) as daemon:
        lists = [[{"id": f"l{n}-{number}", **TASK} for number in range(20)] for n in range(10)]
        lines = [socket.create_connection(("127.0.0.1", daemon.port), timeout=20) for _ in lists]
        assert daemon.submit(TASK).status == 202, "the connections before it are accepted"
        psutil.Process(daemon.pid).suspend()
        for line, each in zip(lines, lists, strict=True):
            line.sendall(request(daemon, each))
        time.sleep(1.0)
        psutil.Process(daemon.pid).resume()
        answers = [drain(line) for line in lines]
        for line in lines:
            line.close()
    assert {answer[9:12] for answer in answers} == {b"202", b"429"}
    assert all(b"\r\nRetry-After: 1\r\n" in answer for answer in answers if answer[9:12] == b"429")


def test_two_daemons_do_not_share_a_port_in_silence(daemon: DaemonProcess, data_dir: Path) -> None:
    (data_dir / "other").mkdir()
    other = DaemonProcess(data_dir / "other", server__workers=2)
    other.port = daemon.port
    ended = subprocess.run(other.command(), capture_output=True, text=True, timeout=20)
    assert ended.returncode == 78 and "somebody listens there already" in ended.stderr


def test_tokens_that_are_read_again_hold_in_front_ends(daemon: DaemonProcess) -> None:
    secret = {"Authorization": "Bearer " + "x" * 32}
    assert daemon.post("/v1/schedule", TASK, headers=secret).status == 401
    digest = hashlib.sha256(b"x" * 32).hexdigest()
    tokens = {"tokens": [{"name": "new", "sha256": digest, "scopes": ["submit"]}]}
    (daemon.data_dir / "tokens.json").write_text(json.dumps(tokens))
    os.kill(daemon.pid, signal.SIGHUP)
    deadline_s = time.monotonic() + 5
    while daemon.post("/v1/schedule", TASK, headers=secret).status != 202:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_what_front_ends_do_is_in_the_metrics_of_the_daemon(daemon: DaemonProcess) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as line:
        for number in range(10):
            line.sendall(request(daemon, {"id": f"t{number}", **TASK}))
            assert drain(line).startswith(b"HTTP/1.1 202 ")
    assert daemon.submit([TASK, TASK]).status == 202
    deadline_s = time.monotonic() + 5
    while metric(daemon, "hetsched_front_requests_total") != 11:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert metric(daemon, "hetsched_submissions_fast_total") == 10
    assert metric(daemon, "hetsched_tasks_accepted_total") == 12
    assert metric(daemon, "hetsched_front_handed_over_total") >= 1
    assert metric(daemon, "hetsched_front_cpu_seconds_total") > 0


# ---------------------------------------------------------------------- leaders


async def test_a_handover_takes_the_front_ends_of_both_along(data_dir: Path, server: Server) -> None:
    daemons = []
    for name in ("one", "two"):
        (data_dir / name).mkdir()
        sets = {"server__name": name, "store__lease": 1.0, "server__workers": 1}
        daemons.append(DaemonProcess(data_dir / name, store=server.url, **sets))
    one, two = daemons
    with one:
        for name in ("token", "agent-token"):
            shutil.copy(data_dir / "one" / name, data_dir / "two" / name)
        with two, socket.create_connection(("127.0.0.1", one.port), timeout=10) as line:
            line.sendall(request(one, {"id": "before", **TASK}))
            assert drain(line).startswith(b"HTTP/1.1 202 ")
            refused = two.submit({"id": "early", **TASK})
            assert refused.status == 503 and refused.headers["hetsched-leader"] == one.url
            await until(lambda: one.get("/v1/cluster").json["standbys"], 5)
            assert one.post("/v1/cluster/handover", {"to": "two"}).status == 200
            await until(lambda: two.submit({"id": "after", **TASK}).status == 202, 5)
            line.sendall(request(one, {"id": "late", **TASK}))
            late = drain(line)
            assert late.startswith(b"HTTP/1.1 503 ") and two.url.encode() in late, "on a connection from before"
            assert two.task("before")["state"] == "queued"
            assert len(front_ends(one)) == len(front_ends(two)) == 1


# ---------------------------------------------------------------------- TLS


def test_under_tls_a_connection_that_asks_for_more_is_tunnelled(data_dir: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    files = ["-keyout", str(data_dir / "key"), "-out", str(data_dir / "crt")]
    subprocess.run([*words.split(), *files], check=True, capture_output=True)

    class Tls(DaemonProcess):
        def _first_line(self, timeout_s: float) -> str:
            return super()._first_line(timeout_s).replace("https:", "http:")

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sets = {"server__tls_cert": str(data_dir / "crt"), "server__tls_key": str(data_dir / "key")}
    with Tls(data_dir, server__workers=1, **sets) as daemon:
        with context.wrap_socket(socket.create_connection(("127.0.0.1", daemon.port), timeout=10)) as line:
            for number in range(3):
                line.sendall(request(daemon, {"id": f"t{number}", **TASK}))
                assert drain(line).startswith(b"HTTP/1.1 202 ")
                line.sendall(read(daemon, f"/v1/tasks/t{number}"))
                assert drain(line).startswith(b"HTTP/1.1 200 ")
            large = [{"id": f"u{number}", **TASK} for number in range(20_000)]
            line.sendall(request(daemon, large))
            answer = drain(line)
            assert answer.startswith(b"HTTP/1.1 202 ") and b'"u19999"' in answer
            line.sendall(read(daemon, "/v1/tasks?limit=1000"))
            assert len(json.loads(drain(line).partition(b"\r\n\r\n")[2])["tasks"]) == 1000
