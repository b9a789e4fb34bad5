"""Very many tasks at once: as columns, and as lines without end."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hetsched.client import Client
from hetsched.model import columns
from tests.daemon.process import DaemonProcess, drain

ONE, TWO = {"resources": {"cpu": 1}}, {"resources": {"cpu": 2}, "queue": "a/b", "deadline": 60}


def post(daemon: DaemonProcess, body: bytes, **headers: str) -> Any:
    return daemon.post("/v1/schedule", body, headers={"Content-Type": columns.MEDIA, **headers})


# ---------------------------------------------------------------------- columns


def test_columns_are_tasks(daemon: DaemonProcess) -> None:
    answer = post(daemon, columns.packed([ONE, TWO], ["c-1", "c-2", "c-3"], [0, 1, 0]))
    assert answer.status == 202, answer
    assert answer.json == {"accepted": 3, "rejected": [], "ids": {"first": "c-1", "count": 3}, "durability": "memory"}
    assert [daemon.task(f"c-{number}")["spec"]["resources"]["cpu"] for number in (1, 2, 3)] == [1, 2, 1]
    assert daemon.task("c-2")["deadline"] and daemon.task("c-2")["spec"]["queue"] == "a/b"


def test_columns_may_leave_the_names_to_the_daemon(daemon: DaemonProcess) -> None:
    ids = post(daemon, columns.packed([ONE], 1000)).json["ids"]
    assert len(ids) == len(set(ids)) == 1000 and ids == sorted(ids)


def test_columns_again_are_the_same_tasks_and_other_ones_a_conflict(daemon: DaemonProcess) -> None:
    body = columns.packed([ONE], ["again-1", "again-2"])
    assert post(daemon, body).status == post(daemon, body).status == 202
    other = post(daemon, columns.packed([TWO], ["again-1", "new-1"]))
    assert other.status == 202 and other.json["ids"] == ["new-1"] and other.json["rejected"][0]["index"] == 0


def test_a_client_sends_very_many_and_sending_again_makes_none_twice(daemon: DaemonProcess) -> None:
    client = Client(daemon.url, daemon.token)
    ids = client.submit_many([ONE, TWO], 2000, [0, 1] * 1000)["ids"]
    assert ids["count"] == 2000
    assert client.task(ids["first"])["spec"]["resources"]["cpu"] == 1
    named = client.submit_many([ONE], ["many-1", "many-2"])
    assert client.submit_many([ONE], ["many-1", "many-2"])["accepted"] == named["accepted"] == 2


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no templates": ({"templates": [], "count": 1}, "/templates"),
    "neither ids nor count": ({"templates": [ONE]}, ""),
    "ids and count": ({"templates": [ONE], "ids": b"a", "count": 1}, ""),
    "no tasks": ({"templates": [ONE], "count": 0}, ""),
    "too many tasks": ({"templates": [ONE], "count": 100_001}, ""),
    "fewer than none": ({"templates": [ONE], "count": -1}, ""),
    "an empty id": ({"templates": [ONE], "ids": b"a\n\nb"}, "/ids"),
    "an illegal id": ({"templates": [ONE], "ids": b"a b"}, "/ids"),
    "a long id": ({"templates": [ONE], "ids": b"a" * 129}, "/ids"),
    "a column too short": ({"templates": [ONE, TWO], "count": 2, "which": b"\0\0\1"}, "/which"),
    "a template that is none": ({"templates": [ONE, TWO], "count": 2, "which": b"\0\0\2\0"}, "/which"),
    "a template of nobody": ({"templates": [ONE, TWO], "count": 2, "which": b"\0\0\0\0"}, "/templates/1"),
    "a fault in a template": ({"templates": [ONE, {"resources": {"cpu": -1}}], "count": 2, "which": b"\0\0\1\0"}, "/templates/1/resources/cpu"),
    "a template that is no task": ({"templates": [5], "count": 1}, "/templates/0"),
    "an id in a template": ({"templates": [{**ONE, "id": "x"}], "count": 1}, "/templates/0/id"),
    "a tie": ({"templates": [{**ONE, "after": ["x"]}], "count": 1}, "/templates/0"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faulty_columns_are_refused_whole(daemon: DaemonProcess, name: str) -> None:
    body, pointer = FAULTS[name]
    problem = post(daemon, msgspec.msgpack.encode(body)).problem()
    assert problem["status"] == 422 and problem["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("body", [b"", b"{}", b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"a": 1}),
                                  b"\x82\xa9templates\x91\x82\xa1a\x01\xa1a\x01\xa5count\x01"])  # fmt: skip
def test_what_is_no_columns_is_a_400_or_a_422(daemon: DaemonProcess, body: bytes) -> None:
    assert post(daemon, body).problem()["status"] in (400, 422)


def test_columns_and_plans_or_keys_do_not_go_together(daemon: DaemonProcess) -> None:
    body = columns.packed([ONE], 1)
    assert post(daemon, body, **{"Idempotency-Key": "k"}).problem()["status"] == 400
    assert daemon.post("/v1/plan", body, headers={"Content-Type": columns.MEDIA}).problem()["status"] == 415


# ---------------------------------------------------------------------- lines without end

LINES = "POST /v1/schedule HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/x-ndjson\r\n"
LINES += "Accept: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def lines(prefix: str, begin: int, end: int, size: int = 0) -> bytes:
    note = {"labels": {"note": "x" * size}} if size else {}
    return b"".join(
        json.dumps({"id": f"{prefix}-{number}", **ONE, **note}).encode() + b"\n" for number in range(begin, end)
    )


def test_each_frame_of_lines_is_answered_before_the_next_is_sent(daemon: DaemonProcess) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as line:
        line.sendall(LINES.format(token=daemon.token).encode())
        file = line.makefile("rb")
        for frame in range(3):
            line.sendall(chunk(lines("frame", 10 * frame, 10 * frame + 10)))
            while not (said := file.readline()).startswith(b"{"):
                assert said, "the daemon closed"
            assert json.loads(said)["accepted"] == 10
        line.sendall(b"0\r\n\r\n")
        assert b"".join(iter(file.readline, b"0\r\n")) is not None
    assert daemon.task("frame-29")["state"] == "queued"


def test_a_fault_after_the_first_frame_is_the_last_line(daemon: DaemonProcess) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as line:
        line.sendall(LINES.format(token=daemon.token).encode() + chunk(lines("fault", 0, 2)))
        file = line.makefile("rb")
        while not (said := file.readline()).startswith(b'{"acc'):
            assert said
        line.sendall(chunk(b'{"resources":\n') + b"0\r\n\r\n")
        rest = file.read()
    assert b'{"problem":{"type":' in rest and daemon.task("fault-1")["state"] == "queued"


def test_a_fault_in_the_first_frame_is_a_status(daemon: DaemonProcess) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as line:
        line.sendall(LINES.format(token=daemon.token).encode() + chunk(b"{\n") + b"0\r\n\r\n")
        assert drain(line).startswith(b"HTTP/1.1 400")


def test_lines_of_many_times_the_limit_need_no_memory(daemon: DaemonProcess) -> None:
    def peak_kb() -> int:
        status = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    before_kb = peak_kb()
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=20) as line:
        line.sendall(LINES.format(token=daemon.token).encode())
        file = line.makefile("rb")
        accepted = 0
        for frame in range(64):  # of 256 KB: sixteen times what a body may have
            line.sendall(chunk(lines("large", 64 * frame, 64 * frame + 64, size=230) * 1 + b"\n" * (240 * 1024)))
        line.sendall(b"0\r\n\r\n")
        for said in file:
            if said.startswith(b'{"acc'):
                accepted += json.loads(said)["accepted"]
            if said == b"0\r\n":
                break
    assert accepted == 64 * 64
    assert peak_kb() - before_kb < 24_000
