"""Reading tasks, ending them, and the operator's hand."""

from __future__ import annotations

import pytest

from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess

SMALL = {"resources": {"cpu": 1}}
NODE = {"name": "t1", "cpu": 8, "memory": "16Gi"}
UNKNOWN = "/v1/tasks/nobody"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", UNKNOWN, None),
        ("GET", UNKNOWN + "/explain", None),
        ("GET", UNKNOWN + "/logs", None),
        ("DELETE", UNKNOWN, None),
        ("POST", UNKNOWN + "/finish", {"attempt": 1, "status": "succeeded"}),
        ("POST", UNKNOWN + "/hold", None),
        ("POST", UNKNOWN + "/release", {}),
        ("POST", UNKNOWN + "/requeue", None),
        ("POST", UNKNOWN + "/priority", {"priority": 1}),
        ("GET", "/v1/nodes/nobody", None),
        ("POST", "/v1/nodes/nobody/drain", None),
        ("GET", "/v1/queues/nobody", None),
    ],
)
def test_what_is_not_there_is_a_404(daemon: DaemonProcess, method: str, path: str, body: object) -> None:
    assert daemon.call(method, path, body).problem()["status"] == 404


def test_who_names_a_whole_array_is_told_how_its_tasks_are_called(daemon: DaemonProcess) -> None:
    daemon.submit({"template": {"id": "sweep", **SMALL}, "count": 2})
    for method in ("GET", "DELETE"):
        assert "sweep-0" in str(daemon.call(method, "/v1/tasks/sweep").problem()["detail"])


def test_a_waiting_task_is_cancelled_once(daemon: DaemonProcess) -> None:
    daemon.submit({"id": "c1", **SMALL})
    answer = daemon.call("DELETE", "/v1/tasks/c1")
    assert (answer.status, answer.json) == (202, {"id": "c1", "state": "cancelled"})
    assert daemon.call("DELETE", "/v1/tasks/c1").problem()["status"] == 409


def test_many_are_cancelled_by_what_they_have_in_common(daemon: DaemonProcess) -> None:
    daemon.submit([{"id": f"cm-{i}", "labels": {"run": str(i % 2)}, **SMALL} for i in range(6)])
    answer = daemon.post("/v1/tasks/cancel", {"label": "run=1"})
    assert (
        answer.status == 202 and answer.json["cancelled"] == ["cm-1", "cm-3", "cm-5"] and answer.json["accepted"] == 3
    )
    answer = daemon.post("/v1/tasks/cancel", {"ids": ["cm-0", "cm-1", "nobody"]})
    assert answer.json["cancelled"] == ["cm-0"] and answer.json["already_ended"] == ["cm-1"]
    assert answer.json["unknown"] == ["nobody"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"labels": "a=b"}, "/labels"),
        ({"ids": "c1"}, "/ids"),
        ({"ids": [1]}, "/ids/0"),
        ({"qos": "urgent"}, "/qos"),
        ({"state": "asleep"}, "/state"),
        ([], ""),
    ],
)
def test_a_cancel_that_says_nothing_or_too_much_is_refused(daemon: DaemonProcess, body: object, pointer: str) -> None:
    problem = daemon.post("/v1/tasks/cancel", body).problem()
    assert problem["status"] in (400, 422) and problem["errors"][0]["pointer"] == pointer


def test_hold_release_and_priority(daemon: DaemonProcess) -> None:
    daemon.submit({"id": "h1", **SMALL})
    assert daemon.post("/v1/tasks/h1/hold").json["state"] == "held"
    assert daemon.post("/v1/tasks/h1/release", {}).json["state"] == "queued"
    assert daemon.post("/v1/tasks/h1/release").problem()["status"] == 409
    assert daemon.post("/v1/tasks/h1/priority", {"priority": 7}).json["priority"] == 7
    for wrong in (1001, "7", None, 1.5):
        assert (
            daemon.post("/v1/tasks/h1/priority", {"priority": wrong}).problem()["errors"][0]["pointer"] == "/priority"
        )


async def test_a_lease_only_task_is_ended_by_its_client_and_a_stale_attempt_is_refused(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, NODE) as agent:
        daemon.submit({"id": "lease", "resources": {"cpu": 2}}, Prefer="wait=5")
        await agent.until(lambda: "lease" in agent.running)
        attempt = agent.running["lease"]
        stale = daemon.post("/v1/tasks/lease/finish", {"attempt": attempt + 1, "status": "succeeded"})
        assert stale.problem()["status"] == 409
        done = daemon.post("/v1/tasks/lease/finish", {"attempt": attempt, "status": "succeeded", "reason": "all good"})
        assert done.status == 200 and done.json["state"] == "succeeded"
        again = daemon.post("/v1/tasks/lease/finish", {"attempt": attempt, "status": "succeeded"})
        assert again.problem()["status"] == 409


def test_why_it_waits_is_coded(daemon: DaemonProcess) -> None:
    daemon.submit({"id": "why", "resources": {"npu": 3}})
    assert daemon.get("/v1/tasks/why/explain").json["reason"]


# ---------------------------------------------------------------------- pages


def pages(daemon: DaemonProcess, query: str) -> list[list[str]]:
    found, cursor = [], ""
    while True:
        page = daemon.get(f"/v1/tasks?{query}{'&cursor=' + cursor if cursor else ''}").json
        found.append([task["id"] for task in page["tasks"]])
        if page["next"] is None:
            return found
        cursor = page["next"]


def test_pages_neither_skip_nor_repeat_while_tasks_come_and_go(daemon: DaemonProcess) -> None:
    daemon.submit([{"id": f"p-{i:03}", "queue": "pages", **SMALL} for i in range(100)])
    seen: list[str] = []
    cursor, step = "", 0
    while cursor is not None:
        page = daemon.get(f"/v1/tasks?queue=pages&limit=7{'&cursor=' + cursor if cursor else ''}").json
        seen += [task["id"] for task in page["tasks"]]
        cursor = page["next"]
        daemon.call("DELETE", f"/v1/tasks/p-{(step * 13) % 100:03}")
        daemon.submit({"id": f"p-new-{step}", "queue": "pages", **SMALL})
        step += 1
        assert step < 200
    assert len(seen) == len(set(seen))
    assert {f"p-{i:03}" for i in range(100)} <= set(seen)


def test_filters(daemon: DaemonProcess) -> None:
    daemon.submit(
        [{"id": f"f-{i}", "queue": "filters", "labels": {"i": str(i)}, "qos": "background", **SMALL} for i in range(4)]
    )
    daemon.call("DELETE", "/v1/tasks/f-0")
    assert pages(daemon, "queue=filters&state=cancelled") == [["f-0"]]
    assert pages(daemon, "queue=filters&state=queued,cancelled&label=i%3D2") == [["f-2"]]
    assert pages(daemon, "queue=filters&qos=critical") == [[]]
    assert pages(daemon, "queue=filters&since=2999-01-01T00:00:00Z") == [[]]
    assert pages(daemon, "queue=filters&limit=2") in (
        [["f-0", "f-1"], ["f-2", "f-3"]],
        [["f-0", "f-1"], ["f-2", "f-3"], []],
    )


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=x", "limit=99999999", "limit=1e3", "limit=%31%30%00", "state=asleep", "qos=urgent", "since=yesterday",
     "cursor=nonsense", "cursor=%FF", "label=", "labels=a", "limit=1&limit=2", "label=novalue", "state=queued%20"],
)  # fmt: skip
def test_a_query_that_makes_no_sense_is_refused_by_name(daemon: DaemonProcess, query: str) -> None:
    answer = daemon.get(f"/v1/tasks?{query}")
    if query == "label=":
        assert answer.status == 200, "an empty filter is none"
        return
    assert answer.problem()["status"] == 400
    assert query.split("=")[0] in answer.json["detail"] + answer.json["errors"][0]["pointer"]
