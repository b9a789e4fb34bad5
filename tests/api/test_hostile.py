"""Whatever is sent: a 4xx problem that names the place, never a 5xx, and a daemon that goes on as before.

Two hundred kinds and more; each is one line of a table, so that one more is one more line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.daemon.process import DaemonProcess

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", autouse=True)
def unharmed(daemon: DaemonProcess) -> Iterator[None]:
    """After all of it: the same process, still serving, no fault of its own in its log."""
    yield
    assert daemon.process is not None and daemon.process.poll() is None
    assert daemon.submit({"id": "after-all", "resources": {"cpu": 1}}).status == 202
    assert "Traceback" not in daemon.stderr(), daemon.stderr()[-3000:]


# ---------------------------------------------------------------------- bodies that are no JSON

BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "spaces": b"   \n",
    "half an object": b'{"resources": {"cpu": 1',
    "half a string": b'{"id": "a',
    "half an escape": b'{"id": "\\u12',
    "half a number": b'{"priority": 1e',
    "half a word": b'{"preemptible": tru',
    "comma at the end": b'{"resources": {"cpu": 1},}',
    "comma in front": b'[,{"resources": {"cpu": 1}}]',
    "two values": b'{"resources":{"cpu":1}} {"resources":{"cpu":1}}',
    "single quotes": b"{'resources': {'cpu': 1}}",
    "bare keys": b"{resources: {cpu: 1}}",
    "a comment": b'{"resources": {"cpu": 1} /* one */}',
    "NaN": b'{"resources": {"cpu": NaN}}',
    "Infinity": b'{"resources": {"cpu": Infinity}}',
    "-Infinity": b'{"priority": -Infinity}',
    "1e999": b'{"resources": {"cpu": 1e999}}',
    "leading zero": b'{"priority": 007}',
    "plus sign": b'{"priority": +7}',
    "hexadecimal": b'{"priority": 0x10}',
    "a very long number": b'{"priority": ' + b"9" * 5000 + b"}",
    "bad UTF-8": b'{"id": "\xff\xfe"}',
    "overlong UTF-8": b'{"id": "\xc0\xaf"}',
    "UTF-16": '{"id": "a"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + b'{"resources": {"cpu": 1}}',
    "a lone surrogate": b'{"name": "\\ud800", "resources": {"cpu": 1}}',
    "a raw control character": b'{"name": "a\x00b", "resources": {"cpu": 1}}',
    "a raw newline in a string": b'{"name": "a\nb", "resources": {"cpu": 1}}',
    "duplicate keys": b'{"id": "a", "id": "b", "resources": {"cpu": 1}}',
    "duplicate keys further in": b'{"resources": {"cpu": 1, "cpu": 2}}',
    "duplicate keys in a list": b'[{"resources": {"cpu": 1}}, {"id": "a", "id": "a"}]',
    "lists nested 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "objects nested 10,000 deep": b'{"labels":' * 10_000 + b"1" + b"}" * 10_000,
    "nested 40 deep": b'{"labels":' + b"[" * 40 + b"]" * 40 + b"}",
    "unclosed nesting": b"[" * 100_000,
    "binary": bytes(range(256)),
    "an HTML form": b"resources=1&id=2",
    "XML": b"<task/>",
    "YAML": b"resources:\n  cpu: 1\n",
    "msgpack": msgspec.msgpack.encode({"resources": {"cpu": 1}}),
    "gzip that nobody announced": gzip.compress(b'{"resources": {"cpu": 1}}'),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_body_that_is_no_json(daemon: DaemonProcess, kind: str) -> None:
    problem = daemon.post("/v1/schedule", BROKEN[kind], headers=JSON).problem()
    assert problem["status"] in (400, 422) and problem["detail"]


# ---------------------------------------------------------------------- fields: (body, pointer of the fault)

BAD_AMOUNTS: list[Any] = [
    "", " ", "4 ", " 4", "1 000", "-1", -1, -0.5, "NaN", "nan", "inf", "Infinity", "0x10", "1e400", "1,5", "four", "4cores",
    "4ki", "4KiB", "4Gib", True, False, [], [1], {"a": 1}, 2**53 + 1, 2**70, 1e300, "9" * 400, "\u0664", "1m5", "1.0000001",
]  # fmt: skip
BAD_DEVICES: list[Any] = [
    "", "two", -1, -0.5, "NaN", 0.0001, 1.0005, True, [], 2**60, {"count": -1}, {"count": "x"}, {"count": 1, "share": 0},
    {"count": 1, "share": 2}, {"count": 1, "share": -0.5}, {"count": 1, "memory": "-1Gi"}, {"count": 1, "modle": "A100"},
    {"count": 1.5, "share": 0.5}, {"count": 1, "model": 7}, {"count": 1, "model": [""]}, {"share": "half"}, {"count": True},
]  # fmt: skip

FIELDS: list[tuple[dict[str, Any], str]] = [
    *(({"resources": {"cpu": amount}}, "/resources/cpu") for amount in BAD_AMOUNTS),
    *(({"resources": {"memory": amount}}, "/resources/memory") for amount in (*BAD_AMOUNTS, 1.5, "1.5", "1m", "0.3Ki")),
    *(({"resources": {"gpu": ask}}, "/resources/gpu") for ask in BAD_DEVICES),
    *(
        ({"resources": {"cpu": 1}, "id": ident}, "/id")
        for ident in ("", "a b", "x" * 129, "ä", "a\nb", "<script>", 5, [], "a\x00")
    ),
    *(({"resources": value}, "/resources") for value in (5, "cpu=1", [1], True)),
    ({"resources": {"GPU!": 1}}, "/resources"),
    ({"resources": {"": 1}}, "/resources"),
    ({"resources": {"cpu": 1}, "qos": "urgent"}, "/qos"),
    ({"resources": {"cpu": 1}, "qos": 1}, "/qos"),
    ({"resources": {"cpu": 1}, "qos": None}, "/qos"),
    ({"resources": {"cpu": 1}, "guarantee": "maybe"}, "/guarantee"),
    ({"resources": {"cpu": 1}, "preemptible": "yes"}, "/preemptible"),
    ({"resources": {"cpu": 1}, "priority": 1001}, "/priority"),
    ({"resources": {"cpu": 1}, "priority": -1001}, "/priority"),
    ({"resources": {"cpu": 1}, "priority": "high"}, "/priority"),
    ({"resources": {"cpu": 1}, "priority": 1.5}, "/priority"),
    ({"resources": {"cpu": 1}, "priority": True}, "/priority"),
    ({"resources": {"cpu": 1}, "priority": 10**300}, "/priority"),
    ({"resources": {"cpu": 1}, "retries": -1}, "/retries"),
    ({"resources": {"cpu": 1}, "retries": 2**64}, "/retries"),
    ({"resources": {"cpu": 1}, "deadline": "tomorrow"}, "/deadline"),
    ({"resources": {"cpu": 1}, "deadline": -5}, "/deadline"),
    ({"resources": {"cpu": 1}, "deadline": 1e300}, "/deadline"),
    ({"resources": {"cpu": 1}, "deadline": "2026-02-30T00:00:00Z"}, "/deadline"),
    ({"resources": {"cpu": 1}, "deadline": "2026-01-01T00:00:00"}, "/deadline"),
    ({"resources": {"cpu": 1}, "deadline": []}, "/deadline"),
    ({"resources": {"cpu": 1}, "on_deadline": "explode"}, "/on_deadline"),
    ({"resources": {"cpu": 1}, "time_limit": -1}, "/time_limit"),
    ({"resources": {"cpu": 1}, "time_limit": "1h"}, "/time_limit"),
    ({"resources": {"cpu": 1}, "grace": -1}, "/grace"),
    ({"resources": {"cpu": 1}, "duration": "long"}, "/duration"),
    ({"resources": {"cpu": 1}, "estimate": -1}, "/estimate"),
    ({"command": "rm -rf /"}, "/command"),
    ({"command": []}, "/command"),
    ({"command": ["echo", 1]}, "/command"),
    ({"command": ["a\x00b"]}, "/command"),
    ({"command": [""]}, "/command"),
    ({"command": ["true"], "env": {"A=B": "c"}}, "/env"),
    ({"command": ["true"], "env": {"A": 1}}, "/env"),
    ({"command": ["true"], "env": {"": "c"}}, "/env"),
    ({"command": ["true"], "env": ["A=B"]}, "/env"),
    ({"command": ["true"], "workdir": 5}, "/workdir"),
    ({"command": ["true"], "workdir": "a\x00b"}, "/workdir"),
    ({"command": ["true"], "user": {"name": "x"}}, "/user"),
    ({"resources": {"cpu": 1}, "labels": [1]}, "/labels"),
    ({"resources": {"cpu": 1}, "labels": {"a": 1}}, "/labels"),
    ({"resources": {"cpu": 1}, "labels": {"a": {"b": "c"}}}, "/labels"),
    ({"resources": {"cpu": 1}, "node_selector": "zone=a"}, "/node_selector"),
    ({"resources": {"cpu": 1}, "node_selector": {"zone": 1}}, "/node_selector"),
    ({"resources": {"cpu": 1}, "tolerations": {}}, "/tolerations"),
    ({"resources": {"cpu": 1}, "tolerations": [{"operator": "Near"}]}, "/tolerations"),
    ({"resources": {"cpu": 1}, "tolerations": ["all"]}, "/tolerations"),
    ({"resources": {"cpu": 1}, "models": "A100"}, "/models"),
    ({"resources": {"cpu": 1}, "models": [1]}, "/models"),
    ({"resources": {"cpu": 1}, "data": [None]}, "/data"),
    ({"resources": {"cpu": 1}, "topology": "numa"}, "/topology"),
    ({"resources": {"cpu": 1}, "topology": {"same": 1}}, "/topology"),
    ({"resources": {"cpu": 1}, "topology": {"same": "numa", "required": "yes"}}, "/topology"),
    ({"resources": {"cpu": 1}, "gang": "g"}, "/gang"),
    ({"resources": {"cpu": 1}, "gang": {"id": "g"}}, "/gang"),
    ({"resources": {"cpu": 1}, "gang": {"id": "g", "size": 0}}, "/gang"),
    ({"resources": {"cpu": 1}, "gang": {"id": "g", "size": 2, "min_size": 3}}, "/gang"),
    ({"resources": {"cpu": 1}, "gang": {"id": "g", "size": 10**12}}, "/gang"),
    ({"resources": {"cpu": 1}, "after": "t1"}, "/after"),
    ({"resources": {"cpu": 1}, "after": [{"id": "t1", "when": "later"}]}, "/after"),
    ({"resources": {"cpu": 1}, "after": ["nobody-knows-this"]}, "/after"),
    ({"id": "self", "resources": {"cpu": 1}, "after": ["self"]}, "/after"),
    ({"resources": {"cpu": 1}, "queue": ""}, "/queue"),
    ({"resources": {"cpu": 1}, "queue": "a//b"}, "/queue"),
    ({"resources": {"cpu": 1}, "queue": 7}, "/queue"),
    ({"resources": {"cpu": 1}, "pattern": "wild"}, "/pattern"),
    ({"resources": {"cpu": 1}, "kind": 7}, "/kind"),
    ({"resources": {"cpu": 1}, "name": 7}, "/name"),
    ({"resources": {"cpu": 1}, "limits": {"cpu": "x"}}, "/limits/cpu"),
    ({"resources": {"cpu": 2}, "limits": {"cpu": 1}}, "/limits"),
    ({"resources": {"cpu": 1}, "resource": {}}, "/resource"),
    ({"resources": {"cpu": 1}, "comand": ["true"]}, "/comand"),
    ({"resources": {"cpu": 1}, "__proto__": {}}, "/__proto__"),
    ({"resources": {"cpu": 1}, "a/b~c": 1}, "/a~1b~0c"),
    ({}, ""),
    ({"id": "nothing-asked"}, ""),
]


@pytest.mark.parametrize(
    ("body", "pointer"), FIELDS, ids=lambda value: str(value)[:60].encode("ascii", "replace").decode()
)
def test_a_field_that_breaks_a_rule_is_named(daemon: DaemonProcess, body: dict[str, Any], pointer: str) -> None:
    problem = daemon.post("/v1/schedule", body).problem()
    assert problem["status"] in (400, 422), problem
    assert any(error["pointer"].startswith(pointer) and error["detail"] for error in problem["errors"]), problem


ONE = {"resources": {"cpu": 1}}
FORMS: list[Any] = [
    None, 5, "text", True, [], [[]], [[[[[[]]]]]], [None, None], [{"resources": {"cpu": None}}],
    {"tasks": {}}, {"tasks": []}, {"tasks": [5]}, {"tasks": [ONE], "more": 1},
    {"template": {}}, {"template": 5, "count": 1}, {"template": ONE}, {"template": ONE, "count": 1, "tasks": [{}]},
    {"template": ONE, "count": 0}, {"template": ONE, "count": -1}, {"template": ONE, "count": 1.5},
    {"template": ONE, "count": 10**9}, {"template": ONE, "count": "9"}, {"template": {"resources": {"cpu": "x"}}, "count": 2},
    {"template": ONE, "tasks": []}, {"template": ONE, "tasks": [5]}, {"template": ONE, "tasks": [{"resources": {"cpu": "x"}}]},
]  # fmt: skip


@pytest.mark.parametrize("body", FORMS, ids=lambda value: json.dumps(value)[:60])
def test_a_form_that_is_none(daemon: DaemonProcess, body: Any) -> None:
    problem = daemon.post("/v1/schedule", json.dumps(body).encode(), headers=JSON).problem()
    assert 400 <= problem["status"] < 500 and problem["errors"]


# ---------------------------------------------------------------------- media types and encodings


@pytest.mark.parametrize("media", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                                   "application/xml", "application/json-patch+json", "application/json; charset=latin-1", "*/*", "json",
                                   "application/json\x0b"])  # fmt: skip
def test_another_media_type_is_415(daemon: DaemonProcess, media: str | None) -> None:
    headers = {} if media is None else {"Content-Type": media}
    answer = daemon.call("POST", "/v1/schedule", b'{"resources": {"cpu": 1}}', headers=headers)
    assert answer.problem()["status"] in (400, 415)


@pytest.mark.parametrize(
    "media", ["application/json; charset=utf-8", 'application/json;charset="UTF-8"', "Application/JSON"]
)
def test_json_said_otherwise_is_understood(daemon: DaemonProcess, media: str) -> None:
    assert (
        daemon.call("POST", "/v1/schedule", b'{"resources": {"cpu": 1}}', headers={"Content-Type": media}).status == 202
    )


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("br", b"whatever", 415),
        ("gzip, gzip", b"whatever", 415),
        ("gzip", b"no gzip at all", 400),
        ("gzip", gzip.compress(b'{"resources": {"cpu": 1}}')[:-9], 400),
        ("deflate", b"no deflate at all", 400),
        ("gzip", b"", 400),
        ("gzip", gzip.compress(b" " * (2 << 20)), 413),
        ("deflate", zlib.compress(b" " * (2 << 20)), 413),
        ("gzip", gzip.compress(b'{"resources": {"cpu": NaN}}'), 400),
    ],
)  # fmt: skip
def test_compressed_bodies_are_held_to_the_same_rules(
    daemon: DaemonProcess, encoding: str, body: bytes, status: int
) -> None:
    answer = daemon.post("/v1/schedule", body, headers={**JSON, "Content-Encoding": encoding})
    assert answer.problem()["status"] == status


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x81",
        b"\x91" * 100_000,
        b"\xd9\x02\xff\xff",
        b"\xc4\x01a",
        b"\xd6\xff\x00\x00\x00\x00",
        b"\xc7\x01\x05x",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        msgspec.msgpack.encode({1: 2}),
        msgspec.msgpack.encode({"resources": {"cpu": float("nan")}}),
        msgspec.msgpack.encode({"resources": {"cpu": float("inf")}}),
        msgspec.msgpack.encode({"resources": {"cpu": b"1"}}),
        msgspec.msgpack.encode({"resources": {"cpu": 2**63}}),
        msgspec.msgpack.encode({"resources": {5: 2}}),
        msgspec.msgpack.encode(5),
    ],
    ids=lambda body: body[:20].hex() or "nothing",
)
def test_msgpack_that_is_none_or_says_what_json_cannot(daemon: DaemonProcess, body: bytes) -> None:
    answer = daemon.post("/v1/schedule", body, headers={"Content-Type": "application/msgpack"})
    assert answer.problem()["status"] in (400, 422)


def test_a_broken_line_is_named_by_its_number(daemon: DaemonProcess) -> None:
    body = b'{"resources": {"cpu": 1}}\n{"resources": {"cpu": 1}}\n{"resources'
    problem = daemon.post("/v1/schedule", body, headers={"Content-Type": "application/x-ndjson"}).problem()
    assert (
        problem["status"] == 400 and "line 3" in problem["detail"] and problem["errors"][0]["pointer"].startswith("/2")
    )


# ---------------------------------------------------------------------- headers, paths and other calls


@pytest.mark.parametrize("key", ["", " ", "x" * 257])
def test_an_idempotency_key_has_bounds(daemon: DaemonProcess, key: str) -> None:
    assert (
        daemon.post("/v1/schedule", {"resources": {"cpu": 1}}, headers={"Idempotency-Key": key}).problem()["status"]
        == 400
    )


@pytest.mark.parametrize(
    "prefer", ["wait", "wait=", "wait=x", "wait=-1", "wait=nan", "x" * 4000, "handling=strict", ";;;,,,==="]
)
def test_a_preference_that_is_not_understood_is_ignored(daemon: DaemonProcess, prefer: str) -> None:
    answer = daemon.post(
        "/v1/schedule", {"id": "preferring", "qos": "background", "resources": {"cpu": 1}}, headers={"Prefer": prefer}
    )
    assert answer.status == 202


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v2/tasks", 404),
        ("GET", "/v1/tasks/", 404),
        ("GET", "/v1/tasks/%00", 404),
        ("GET", "/v1/tasks/%ff%fe", 404),
        ("GET", "/v1/tasks/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/tasks/" + "x" * 5000, 404),
        ("GET", "/v1/nodes/%F0%9F%98%80", 404),
        ("GET", "/v1/schedule", 405),
        ("PUT", "/v1/schedule", 405),
        ("PATCH", "/v1/tasks/x", 405),
        ("DELETE", "/v1/tasks", 405),
        ("POST", "/v1/nodes", 405),
        ("BREW", "/v1/tasks", 400),
        ("GET", "/v1/agents/connect", 403),
        ("GET", "/v1/events?since=-1", 400),
        ("GET", "/v1/events?since=abc", 400),
        ("GET", "/v1/events?since=99999999999999999999999", 400),
        ("GET", "/v1/cluster?verbose=1", 400),
        ("GET", "/v1/tasks/preferring/logs?stream=stdin", 400),
        ("GET", "/v1/tasks/preferring/logs?offset=-1", 400),
        ("GET", "/v1/tasks/preferring/logs?follow=maybe", 400),
        ("GET", "/v1/tasks/preferring/logs?attempt=x", 400),
    ],
)
def test_paths_and_queries_that_are_none(daemon: DaemonProcess, method: str, path: str, status: int) -> None:
    answer = daemon.call(method, path)
    if path == "/v1/agents/connect":
        assert answer.problem()["status"] in (403, 426), "admin tokens may, but a WebSocket it is not"
        return
    assert answer.problem()["status"] == status, answer
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tasks/preferring/finish", {}),
        ("/v1/tasks/preferring/finish", {"attempt": "1", "status": "succeeded"}),
        ("/v1/tasks/preferring/finish", {"attempt": 1, "status": "great"}),
        ("/v1/tasks/preferring/finish", {"attempt": 1, "status": "succeeded", "why": "x"}),
        ("/v1/tasks/preferring/finish", {"attempt": 10**30, "status": "succeeded"}),
        ("/v1/tasks/preferring/finish", [1]),
        ("/v1/tasks/preferring/hold", {"for": 5}),
        ("/v1/tasks/preferring/priority", {}),
        ("/v1/tasks/preferring/priority", {"priority": [7]}),
        ("/v1/tasks/preferring/priority", {"priority": 10**30}),
        ("/v1/tasks/cancel", {"ids": {"a": 1}}),
        ("/v1/tasks/cancel", {"label": "no-equals-sign"}),
    ],
)
def test_small_bodies_are_held_to_rules_too(daemon: DaemonProcess, path: str, body: Any) -> None:
    assert daemon.post(path, body).problem()["status"] in (400, 409, 422)


@pytest.mark.parametrize(
    "body",
    [{"weight": -1}, {"weight": "heavy"}, {"weight": 10**30}, {"guaranteed": {"gpu": -1}}, {"limit": {"memory": "x"}},
     {"guaranteed": []}, {"guarantee": {"gpu": 1}}, {"limit": {"cpu": True}}, []],
)  # fmt: skip
def test_queues_that_are_none(daemon: DaemonProcess, body: Any) -> None:
    problem = daemon.call("PUT", "/v1/queues/research", body).problem()
    assert problem["status"] in (400, 422) and problem["errors"]
