"""`POST /v1/schedule`: every form of the body, and answers that promise what is in the journal."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import msgspec
import pytest

from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess

SMALL = {"resources": {"cpu": 1}}
NODE = {
    "name": "n1",
    "cpu": 8,
    "memory": "16Gi",
    "devices": [{"kind": "gpu", "model": "A100", "count": 2, "memory": "40Gi"}],
}


def ndjson(*items: Any) -> bytes:
    return b"\n".join(json.dumps(item).encode() for item in items)


def test_one_task_is_accepted_with_its_place_and_its_normalised_self(daemon: DaemonProcess) -> None:
    answer = daemon.submit({"id": "team/one:1", "resources": {"cpu": "1500m", "memory": "1Gi"}, "labels": {"a": "b"}})
    assert answer.status == 202
    assert answer.headers["location"] == "/v1/tasks/team/one:1"
    body = answer.json
    assert (body["id"], body["state"], body["lane"], body["durability"]) == ("team/one:1", "queued", "batch", "memory")
    assert body["request"]["qos"] == "production"
    for path in ("/v1/tasks/team/one:1", "/v1/tasks/team%2Fone:1", "/v1/tasks/team%2Fone%3A1"):
        assert daemon.get(path).json["id"] == "team/one:1"


@pytest.mark.parametrize(
    "ident", ["p/../q", "p//q", "p/", "/p", "p/explain", "p/logs", "explain", "p/./q", "p/...", "p.q/.r"]
)
def test_the_location_leads_to_the_task_whatever_its_id(daemon: DaemonProcess, ident: str) -> None:
    where = daemon.submit({"id": ident, **SMALL}).headers["location"]
    assert not any(part in ("", ".", "..") for part in where.removeprefix("/v1/tasks/").split("/"))
    assert daemon.get(where).json["id"] == ident
    assert daemon.get(f"{where}/explain").json["id"] == ident


def test_a_hundred_thousand_refusals_are_an_answer_that_can_be_read(daemon: DaemonProcess) -> None:
    answer = daemon.submit({"template": {"nonsense": 1}, "count": 100_000})
    assert answer.status == 422 and len(answer.body) < 1 << 20
    problem = answer.problem()
    assert problem["rejected_total"] == 100_000 and len(problem["rejected"]) == 1000
    assert problem["errors"][0]["pointer"] == "/template/nonsense"


def test_a_task_without_an_id_gets_one_that_sorts(daemon: DaemonProcess) -> None:
    ids = [daemon.submit(SMALL).json["id"] for _ in range(3)]
    assert ids == sorted(ids) and len(set(ids)) == 3


@pytest.mark.parametrize("form", ["list", "tasks", "ndjson", "msgpack", "gzip", "deflate", "array of entries"])
def test_many_at_once_in_every_form(daemon: DaemonProcess, form: str) -> None:
    name = form.replace(" ", "-")
    items = [{"id": f"{name}-{i}", **SMALL} for i in range(3)]
    headers = {"Content-Type": "application/json"}
    match form:
        case "tasks":
            body = json.dumps({"tasks": items}).encode()
        case "ndjson":
            body, headers = ndjson(*items) + b"\n\n", {"Content-Type": "application/x-ndjson"}
        case "msgpack":
            body, headers = msgspec.msgpack.encode(items), {"Content-Type": "application/msgpack"}
        case "gzip":
            body, headers = gzip.compress(json.dumps(items).encode()), {**headers, "Content-Encoding": "gzip"}
        case "deflate":
            body, headers = zlib.compress(json.dumps(items).encode()), {**headers, "Content-Encoding": "deflate"}
        case "array of entries":
            body = json.dumps({"template": SMALL, "tasks": [{"id": item["id"]} for item in items]}).encode()
        case _:
            body = json.dumps(items).encode()
    answer = daemon.post("/v1/schedule", body, headers=headers)
    assert answer.status == 202, answer
    assert answer.json["accepted"] == 3 and answer.json["rejected"] == []
    assert answer.json["ids"] == [item["id"] for item in items]


def test_an_array_is_answered_with_first_and_count(daemon: DaemonProcess) -> None:
    answer = daemon.submit({"template": {"id": "arr", **SMALL}, "count": 1000})
    assert answer.json["ids"] == {"first": "arr-0", "count": 1000} and answer.json["accepted"] == 1000
    assert daemon.task("arr-999")["state"] == "queued"


def test_good_ones_go_in_beside_refusals_that_name_their_place(daemon: DaemonProcess) -> None:
    answer = daemon.submit(
        [{"id": "good-1", **SMALL}, {"id": "bad", "resources": {"cpu": -1}}, {"id": "good-2", **SMALL}]
    )
    assert answer.status == 202 and answer.json["accepted"] == 2 and answer.json["ids"] == ["good-1", "good-2"]
    (refused,) = answer.json["rejected"]
    assert refused["index"] == 1 and refused["problem"]["errors"][0]["pointer"] == "/resources/cpu"


def test_a_list_of_which_nothing_was_accepted_is_no_success(daemon: DaemonProcess) -> None:
    problem = daemon.submit([{"resources": {"cpu": -1}}, {"resources": {"gpu": "x"}}]).problem()
    assert problem["status"] == 422 and problem["accepted"] == 0 and len(problem["rejected"]) == 2
    assert {error["pointer"] for error in problem["errors"]} == {"/0/resources/cpu", "/1/resources/gpu"}


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"tasks": [{"resources": {"cpu": -1}}]}, {"/tasks/0/resources/cpu"}),
        ({"template": {"resources": {"cpu": -1}}, "count": 500}, {"/template/resources/cpu"}),
        (
            {"template": {}, "tasks": [{"resources": {"cpu": -1}}] * 2},
            {"/tasks/0/resources/cpu", "/tasks/1/resources/cpu"},
        ),
    ],
)
def test_pointers_are_from_the_body_as_it_was_sent(daemon: DaemonProcess, body: Any, pointers: set[str]) -> None:
    assert {error["pointer"] for error in daemon.submit(body).problem()["errors"]} == pointers


def test_the_same_id_again_is_the_same_task_and_another_body_is_a_conflict(daemon: DaemonProcess) -> None:
    assert daemon.submit({"id": "twice", **SMALL}).status == 202
    assert daemon.submit({"id": "twice", **SMALL}).status == 202
    assert daemon.submit({"id": "twice", "resources": {"cpu": 2}}).problem()["status"] == 409


def test_an_idempotency_key_makes_a_retry_the_same_tasks(daemon: DaemonProcess) -> None:
    first = daemon.submit([SMALL, SMALL], Idempotency_Key="k1").json
    assert daemon.submit([SMALL, SMALL], Idempotency_Key="k1").json["ids"] == first["ids"]
    assert daemon.submit([SMALL], Idempotency_Key="k1").problem()["status"] == 409
    assert daemon.submit([SMALL, SMALL], Idempotency_Key="k2").json["ids"] != first["ids"]


def test_waiting_ends_with_the_time_when_nothing_can_be_placed(daemon: DaemonProcess) -> None:
    answer = daemon.submit({"resources": {"fpga": 7}}, Prefer="respond-async, wait=0.2")
    assert answer.status == 202 and answer.json["state"] == "queued" and "placement" not in answer.json
    assert answer.headers["preference-applied"].startswith("wait")


async def test_a_critical_task_is_answered_with_its_placement(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, NODE) as agent:
        answer = daemon.submit({"id": "now", "qos": "critical", "resources": {"gpu": 1}})
        assert answer.json["lane"] == "immediate" and answer.json["state"] == "placed"
        assert answer.json["placement"]["node"] == "n1"
        assert answer.json["placement"]["devices"][0]["share"] == 1000
        await agent.until(lambda: "now" in agent.running)
        await agent.end("now")


async def test_waiting_holds_the_answer_until_it_is_placed(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, {**NODE, "name": "n2"}):
        answer = daemon.submit({"id": "held-answer", "resources": {"gpu": 0.5}}, Prefer="wait=5")
        assert answer.json["state"] in ("placed", "running") and answer.json["placement"]["node"] in ("n1", "n2")
