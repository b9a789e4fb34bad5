"""Who may: a token even on loopback, scopes, bound queues, and no name but our own."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.api.routes import ROUTES
from tests.daemon.process import DaemonProcess

TASK = {"resources": {"cpu": 1}}
TOKENS = {
    "reader": {"scopes": ["read"]},
    "submitter": {"scopes": ["submit"]},
    "urgent": {"scopes": ["submit", "immediate"]},
    "team": {"scopes": ["submit", "read", "cancel"], "queues": ["team"]},
    "node": {"scopes": ["node"]},
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon with a token of each sort; the secret is the name."""
    with tempfile.TemporaryDirectory(prefix="hs-") as name:
        path = Path(name)
        listed = [
            {"name": n, "sha256": hashlib.sha256(n.encode()).hexdigest(), **fields} for n, fields in TOKENS.items()
        ]
        (path / "tokens.json").write_text(json.dumps({"tokens": listed}))
        with DaemonProcess(path) as process:
            yield process


def as_(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


def path_of(route: str) -> str:
    return route.replace("{id:.+}", "x").replace("{name:.+}", "x").replace("{name}", "x")


@pytest.mark.parametrize("route", [r for r in ROUTES if r.scope], ids=lambda r: f"{r.method} {r.path}")
@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic YTpi"])
def test_every_call_but_the_open_ones_needs_a_token(
    daemon: DaemonProcess, route: object, authorization: str | None
) -> None:
    answer = daemon.call(route.method, path_of(route.path), headers={"Authorization": authorization})  # type: ignore[attr-defined,dict-item]
    assert answer.problem()["status"] == 401 and answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/version", "/openapi.json", "/"])
def test_probes_and_descriptions_are_open(daemon: DaemonProcess, path: str) -> None:
    assert daemon.call("GET", path, headers={"Authorization": None}).status == 200  # type: ignore[dict-item]


@pytest.mark.parametrize("route", [r for r in ROUTES if r.scope], ids=lambda r: f"{r.method} {r.path}")
def test_a_token_opens_only_what_its_scope_says(daemon: DaemonProcess, route: object) -> None:
    for name in ("reader", "submitter", "node"):
        answer = (
            daemon.call(route.method, path_of(route.path), headers={**as_(name), "Connection": "close"}, timeout_s=2)
            # type: ignore[attr-defined]
            if (
                route.scope not in TOKENS[name]["scopes"]  # type: ignore[attr-defined]
            )
            else None
        )
        if answer is not None:
            assert answer.problem()["status"] == 403 and repr(route.scope) in answer.json["detail"]  # type: ignore[attr-defined]


def test_a_critical_task_needs_the_scope_immediate(daemon: DaemonProcess) -> None:
    critical = {**TASK, "qos": "critical"}
    refused = daemon.post("/v1/schedule", critical, headers=as_("submitter")).problem()
    assert refused["status"] == 403 and refused["errors"][0]["pointer"] == "/qos"
    assert daemon.post("/v1/schedule", critical, headers=as_("urgent")).status == 202
    mixed = daemon.post("/v1/schedule", [TASK, critical], headers=as_("submitter"))
    assert mixed.status == 202 and mixed.json["rejected"][0]["problem"]["status"] == 403


def test_a_token_bound_to_a_queue_changes_nothing_elsewhere(daemon: DaemonProcess) -> None:
    mine = daemon.post("/v1/schedule", {**TASK, "queue": "team/vision"}, headers=as_("team"))
    assert mine.status == 202
    refused = daemon.post("/v1/schedule", TASK, headers=as_("team")).problem()
    assert refused["status"] == 403 and refused["errors"][0]["pointer"] == "/queue"
    theirs = daemon.submit({"id": "theirs", **TASK}).json["id"]
    for method, path, body in (
        ("DELETE", f"/v1/tasks/{theirs}", None),
        ("POST", f"/v1/tasks/{theirs}/hold", None),
        ("POST", f"/v1/tasks/{theirs}/finish", {"attempt": 1, "status": "succeeded"}),
        ("POST", "/v1/tasks/cancel", {"ids": [theirs]}),
        ("POST", "/v1/tasks/cancel", {"qos": "production"}),
        ("POST", "/v1/tasks/cancel", {"queue": "default"}),
    ):
        assert daemon.call(method, path, body, headers=as_("team")).problem()["status"] == 403, path
    assert daemon.call("DELETE", f"/v1/tasks/{mine.json['id']}", headers=as_("team")).status == 202
    assert daemon.task(theirs)["state"] == "queued"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.", "169.254.169.254", "[::2]:80", "x" * 300]
)
def test_on_loopback_only_local_names_are_answered(daemon: DaemonProcess, host: str) -> None:
    for path in ("/v1/tasks", "/healthz", "/"):
        assert daemon.get(path, headers={"Host": host}).problem()["status"] == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:65535", "[::1]:8700"])
def test_local_names_are_answered_whatever_the_port(daemon: DaemonProcess, host: str) -> None:
    assert daemon.get("/healthz", headers={"Host": host}).status == 200


def test_answers_carry_the_headers_that_keep_browsers_harmless(daemon: DaemonProcess) -> None:
    for path in ("/", "/v1/tasks", "/nothing"):
        headers = daemon.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assert "default-src 'none'" in daemon.get("/").headers["content-security-policy"]


def test_tokens_are_read_again_on_sighup(daemon: DaemonProcess) -> None:
    import signal
    import time

    listed = json.loads((daemon.data_dir / "tokens.json").read_text())
    listed["tokens"].append({"name": "late", "sha256": hashlib.sha256(b"late").hexdigest(), "scopes": ["read"]})
    (daemon.data_dir / "tokens.json").write_text(json.dumps(listed))
    assert daemon.get("/v1/tasks", headers=as_("late")).status == 401
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert daemon.get("/v1/tasks", headers=as_("late")).status == 200


def test_secrets_are_in_no_log(daemon: DaemonProcess) -> None:
    said = daemon.stderr()
    assert daemon.token not in said and daemon.agent_token not in said
