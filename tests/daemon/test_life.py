"""The daemon's own life: what was acknowledged is found again, SIGTERM touches no task, two never share a directory."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess

TASK = {"resources": {"cpu": 1}}
NODE = {"name": "n1", "cpu": 8, "memory": "16Gi"}


def test_what_was_answered_202_is_found_after_kill_9(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        answers = [daemon.submit({"id": f"k-{i}", "labels": {"i": str(i)}, **TASK}) for i in range(20)]
        assert all(answer.status == 202 and answer.json["durability"] == "fsync" for answer in answers)
        assert daemon.submit({"template": {"id": "arr", **TASK}, "count": 500}).status == 202
        epoch = daemon.get("/v1/cluster").json["epoch"]
        for _ in range(2):
            daemon.kill()
            daemon.start()
        for i in range(20):
            assert daemon.task(f"k-{i}")["labels"] == {"i": str(i)}
        assert daemon.task("arr-499")["state"] == "queued"
        assert daemon.get("/v1/cluster").json["epoch"] == epoch + 2
        assert daemon.submit({"id": "k-0", "labels": {"i": "0"}, **TASK}).status == 202, "the same again"
        assert daemon.submit({"id": "k-0", **TASK}).status == 409


async def test_sigterm_stops_no_task_and_a_restart_goes_on_with_it(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        async with TestAgent(daemon, NODE) as agent:
            daemon.submit({"id": "long", "command": ["sleep", "1000"], **TASK}, Prefer="wait=5")
            await agent.until(lambda: "long" in agent.running)
            assert await asyncio.to_thread(daemon.stop) == 0
            assert not [order for order in agent.got if type(order).__name__ == "Stop"]
        await asyncio.to_thread(daemon.start)
        assert daemon.task("long")["state"] == "running"
        assert daemon.get("/v1/nodes/n1").json["state"] == "silent", "its agent has not come back yet"
        async with agent:
            assert daemon.get("/v1/nodes/n1").json["state"] == "ready"
            await agent.end("long")
            await agent.until(lambda: not agent.ended)
            done = daemon.task("long")
            assert done["state"] == "succeeded" and len(done["attempts"]) == 1


def test_what_is_under_way_at_sigterm_is_answered_and_a_202_is_kept(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        answered: list[str] = []
        odd: list[object] = []

        def submit(worker: int) -> None:
            for number in range(10_000):
                name = f"u{worker}-{number}"
                try:
                    answer = daemon.submit({"id": name, **TASK})
                except ConnectionRefusedError:
                    return
                except (ConnectionError, http.client.HTTPException) as error:
                    odd.append(error)
                    return
                if answer.status == 202:
                    answered.append(name)
                elif answer.status != 503:
                    odd.append(answer)

        workers = [threading.Thread(target=submit, args=(i,)) for i in range(6)]
        for worker in workers:
            worker.start()
        time.sleep(0.5)
        assert daemon.stop() == 0
        for worker in workers:
            worker.join()
        assert len(answered) > 20
        assert len(odd) <= len(workers), "at most the one connection each that was in the listener's queue"
        assert not [answer for answer in odd if not isinstance(answer, Exception)]
        daemon.start()
        for name in answered:
            assert daemon.task(name)["state"] == "queued"


def test_a_clean_stop_leaves_a_snapshot_and_the_next_start_replays_nothing(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        daemon.submit({"template": {"id": "s", **TASK}, "count": 1000})
        assert daemon.stop() == 0
        assert "snapshot of" in daemon.stderr()
        daemon.start()
        assert daemon.task("s-999")["state"] == "queued"


def test_sequence_numbers_of_events_go_on_after_a_restart(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        daemon.submit([TASK] * 3)
        daemon.kill()
        daemon.start()
        assert daemon.get("/v1/events?since=2").problem()["status"] == 410
        daemon.submit({"id": "next", **TASK})
        answer = daemon.get("/v1/events?since=3&follow=false")
        assert b"id: 4\n" in answer.body and b'"task":"next"' in answer.body


def test_a_full_inbox_answers_429_with_retry_after_and_loses_nothing(data_dir: Path) -> None:
    sets = {"limits__inbox_tasks": 200, "limits__array_tasks": 200, "limits__bulk_tasks": 200}
    with DaemonProcess(data_dir, store="embedded:", **sets) as daemon:
        statuses: list[int] = []
        accepted: list[str] = []

        def flood(worker: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)
            for number in range(30):
                name = f"w{worker}-{number}"
                body = json.dumps({"template": {"id": name, **TASK}, "count": 150}).encode()
                connection.request("POST", "/v1/schedule", body, daemon.headers(Content_Type="application/json"))
                answer = connection.getresponse()
                answer.read()
                statuses.append(answer.status)
                if answer.status == 202:
                    accepted.append(f"{name}-149")
                else:
                    assert int(answer.headers["Retry-After"]) >= 1

        workers = [threading.Thread(target=flood, args=(i,)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert set(statuses) == {202, 429}
        for task in accepted[:: max(1, len(accepted) // 20)]:
            assert daemon.task(task)["state"] == "queued"


# ---------------------------------------------------------------------- refusing to start


def refused(daemon: DaemonProcess, *words: str) -> tuple[int, str]:
    done = subprocess.run([*daemon.command(), *words], capture_output=True, text=True, timeout=20)
    return done.returncode, done.stdout + done.stderr


def test_two_daemons_never_share_a_directory(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        code, said = refused(daemon)
        assert code == 78 and "in use by another daemon" in said and str(daemon.pid) in said
        assert daemon.get("/healthz").status == 200


def test_a_port_in_use_is_said_before_anything_is_touched(data_dir: Path, tmp_path: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        other = DaemonProcess(tmp_path / "other")
        code, said = refused(other, "--listen", f"127.0.0.1:{daemon.port}")
        assert code == 78 and "cannot listen" in said
        assert not (tmp_path / "other" / "url").exists()


def test_beyond_loopback_it_does_not_start_without_tls_and_names_the_commands(data_dir: Path) -> None:
    code, said = refused(DaemonProcess(data_dir), "--listen", "0.0.0.0:0")
    assert code == 78 and "--insecure" in said and "openssl req" in said and "ssh -L" in said


def test_insecure_is_said_loudly_and_in_a_metric(data_dir: Path) -> None:
    class Insecure(DaemonProcess):
        def command(self) -> list[str]:
            return [*super().command(), "--listen", "0.0.0.0:0", "--insecure"]

        def _first_line(self, timeout_s: float) -> str:
            return super()._first_line(timeout_s).replace("0.0.0.0", "127.0.0.1")

    with Insecure(data_dir) as daemon:
        assert "INSECURE" in daemon.stderr()
        assert b"hetsched_insecure 1.0" in daemon.get("/metrics").body
        assert daemon.get("/v1/tasks", headers={"Host": "any.name.example"}).status == 200


def test_the_address_is_left_in_the_data_directory(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        assert (data_dir / "url").read_text() == f"http://127.0.0.1:{daemon.port}\n"


def test_a_second_signal_stops_at_once(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        assert daemon.process is not None
        held = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)
        held.request("GET", "/healthz", headers=daemon.headers())
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(5) in (0, 128 + signal.SIGTERM, -signal.SIGTERM)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed one, made by the command that the refusal names."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    words = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost".split()
    )
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt")]
    subprocess.run([*words, *names], check=True, capture_output=True)
    return tmp_path


def test_with_a_certificate_it_serves_tls(data_dir: Path, certificate: Path) -> None:
    import ssl
    import urllib.request

    class Tls(DaemonProcess):
        def _first_line(self, timeout_s: float) -> str:
            return super()._first_line(timeout_s).replace("https:", "http:")

    sets = {"server__tls_cert": str(certificate / "crt"), "server__tls_key": str(certificate / "key")}
    with Tls(data_dir, **sets):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = (data_dir / "url").read_text().strip()
        assert url.startswith("https://")
        with urllib.request.urlopen(url + "/healthz", context=context, timeout=5) as answer:
            assert answer.status == 200


def test_a_body_that_comes_after_sigterm_is_answered_too(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        body = json.dumps({"id": "late", **TASK}).encode()
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as connection:
            head = f"POST /v1/schedule HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\nAuthorization: Bearer {daemon.token}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body[:10])
            time.sleep(0.3)
            os.kill(daemon.pid, signal.SIGTERM)
            time.sleep(0.7)
            connection.sendall(body[10:])
            assert connection.recv(64).startswith(b"HTTP/1.1 503 ")
        assert daemon.process is not None and daemon.process.wait(30) == 0
