"""A daemon of the tests' own: the answers of CONTRACT section 3 from a dictionary, with faults on demand.

Only for what the real one cannot be made to do at will: drop a connection after having accepted, stand by, forget events.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "a-token-of-the-tests"


class FakeDaemon:
    """`url`; `tasks` by id; `asked`: every request as (method, path, body, headers); `faults`: what the next requests meet;
    `leader`: whom the answers name, as a standby's do; `ready`: what
    /readyz says."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, bytes] = {}
        self.explained: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.oldest_event = 1
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []
        self.faults: list[str] = []
        self.looks: dict[str, list[str]] = {}
        self.leader = ""
        self.ready = True
        daemon = self

        class Handler(_Handler):
            fake = daemon

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, task_id: str, state: str = "queued", **fields: Any) -> dict[str, Any]:
        """A task; `looks` makes its state change with every look at it."""
        self.tasks[task_id] = {"id": task_id, "state": state, "qos": "production", "queue": "default", **fields}
        return self.tasks[task_id]

    def submit(self, body: Any, key: str) -> tuple[int, Any]:
        if key in self.keys:
            return 202, self.keys[key]
        if isinstance(body, dict) and "template" in body:
            stem = body["template"].get("id", "made")
            ids = [e["id"] for e in body["tasks"]] if "tasks" in body else [f"{stem}-{i}" for i in range(body["count"])]
            for task_id in ids:
                self.add(task_id)
            first: Any = ids if "tasks" in body else {"first": ids[0], "count": len(ids)}
            answer: dict[str, Any] = {"accepted": len(ids), "rejected": [], "ids": first}
        elif isinstance(body, list):
            answer = {"accepted": 0, "rejected": [], "ids": []}
            for index, item in enumerate(body):
                if item.get("resources", {}).get("memory") == "16Gib":
                    answer["rejected"].append({"index": index, "problem": BAD_MEMORY})
                else:
                    answer["ids"].append(self.add(item.get("id", f"made-{index}"))["id"])
                    answer["accepted"] += 1
        elif body.get("resources", {}).get("memory") == "16Gib":
            return 422, BAD_MEMORY
        else:
            task = self.add(body.get("id", "made"))
            answer = {"id": task["id"], "state": "queued", "lane": "batch"}
        self.keys[key] = answer
        return 202, answer

    def plan(self, body: Any) -> tuple[int, Any]:
        """The first task starts by evicting, the second later, the third is refused."""
        if body.get("resources", {}).get("memory") == "16Gib":
            return 422, BAD_MEMORY
        evicts = {
            "index": 0,
            "id": "p-0",
            "state": "queued",
            "starts": "after_victims",
            "eta": {"p50": 0.0, "p90": 30.0},
            "placement": {"node": "n1", "devices": [{"id": "gpu-0", "share": 500}]},
            "victims": [{"id": "v1"}, {"id": "v2"}],
            "price_device_seconds": 12.5,
        }
        later = {
            "index": 1,
            "id": None,
            "state": "queued",
            "starts": "later",
            "reason": "no_capacity",
            "detail": "full",
        }
        rejected = [{"index": 2, "problem": BAD_MEMORY}] if body.get("count") == 3 else []
        summary = {
            "after_victims": 1,
            "later": 1,
            "rejected": len(rejected),
            "victims": 2,
            "price_device_seconds": 12.5,
        }
        tasks = [evicts, {**later, "eta": None, "eta_reason": "nobody said how long"}]
        return 200, {"tasks": tasks, "rejected": rejected, "summary": summary}

    def look(self, task_id: str) -> dict[str, Any]:
        task = self.tasks[task_id]
        if self.looks.get(task_id):
            task["state"] = self.looks[task_id].pop(0)
        return task


BAD_MEMORY = {
    "type": "urn:hetsched:problem:invalid",
    "title": "The body breaks a rule",
    "status": 422,
    "detail": "/resources/memory: unknown suffix 'Gib'",
    "errors": [{"pointer": "/resources/memory", "detail": "unknown suffix 'Gib'"}],
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeDaemon

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_DELETE = do_PUT = do_GET

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else None
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if url.path == "/readyz":
            return self._send(200 if self.fake.ready else 503, b"{}", "application/json")
        fault = self.fake.faults.pop(0) if self.fake.faults else ""
        self.fake.asked.append((self.command, self.path, body, dict(self.headers)))
        if fault == "slow":
            time.sleep(0.5)
        if fault == "standby":
            return self._problem(503, "recovering", {"Retry-After": "0"})
        if fault == "away":
            return self._problem(503, "the lease is over", {"Retry-After": "30"})
        if fault and fault.startswith("http"):
            return self._problem(503, "standing by", {"Retry-After": "0"}, leader=fault)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._problem(401, "this token is not known here")
        try:
            status, answer = self._answer(self.command, url.path.split("/")[2:], query, body)
        except KeyError:
            return self._problem(404, f"there is no {unquote(url.path)}")
        if fault == "drop":
            self.close_connection = True
            return self.connection.close()
        if isinstance(answer, bytes):
            return self._send(status, answer, "text/plain")
        self._send(
            status,
            json.dumps(answer).encode(),
            "application/json" if status < 400 else "application/problem+json",
            {"Hetsched-Leader": self.fake.leader, "Hetsched-Lag": "0.1"} if self.fake.leader else None,
        )

    def _answer(self, method: str, path: list[str], query: dict[str, str], body: Any) -> tuple[int, Any]:
        fake = self.fake
        match method, *map(unquote, path):
            case "POST", "schedule":
                return fake.submit(body, self.headers["Idempotency-Key"])
            case "POST", "plan":
                return fake.plan(body)
            case "GET", "tasks":
                start, limit = int(query.get("cursor", 0)), int(query["limit"])
                found = [t for t in fake.tasks.values() if query.get("state") in (None, t["state"])]
                more = str(start + limit) if len(found) > start + limit else None
                return 200, {"tasks": found[start : start + limit], "next": more}
            case "GET", "tasks", task_id:
                return 200, fake.look(task_id)
            case "GET", "tasks", task_id, "explain":
                found = {"id": task_id, "state": fake.tasks[task_id]["state"], "reason": "no_capacity"}
                return 200, found | fake.explained.get(task_id, {})
            case "GET", "tasks", task_id, "logs":
                return 200, fake.logs[task_id][int(query["offset"]) :]
            case "DELETE", "tasks", task_id:
                if fake.tasks[task_id]["state"] in ("succeeded", "cancelled"):
                    return 409, {"status": 409, "detail": f"{task_id} has already ended"}
                fake.tasks[task_id]["state"] = "cancelled"
                return 202, fake.tasks[task_id]
            case "POST", "tasks", "cancel":
                return 202, {"cancelled": ["a", "b"], "already_ended": [], "unknown": []}
            case "POST", "tasks", task_id, verb:
                return 200, {**fake.tasks[task_id], "asked": verb}
            case "GET", "nodes":
                return 200, {"nodes": [{"name": "n0", "state": "ready", "labels": {"zone": "z1"}}]}
            case "GET", "devices":
                return 200, {"devices": [{"node": "n0", "id": "gpu-0", "model": "A100", "health": "healthy"}]}
            case "GET", "profiles":
                row = {"type": "training", "size": "1", "model": "A100", "runs": 9, "p50": 61.5, "p90": 80.0}
                row |= {"error": 0.1, "estimate_error": None, "replaces_estimate": True}
                row |= {"times": [60.0, 61.5]} if query.get("times") else {}
                return 200, {"profiles": [row] if query.get("type", "training") == "training" else []}
            case "POST", "profiles":
                return 200, {"imported": len(body["profiles"])}
            case "GET", "cluster":
                tasks, lanes = {"running": 2, "held": 1}, {"immediate": 0, "batch": 3, "backoff": 0}
                totals = {"capacity": {"cpu": 64.0, "gpu": 8}, "used": {"cpu": 4.0, "gpu": 2.5}}
                return 200, {"tasks": tasks, "lanes": lanes, **totals, "nodes": {"total": 1, "open": 1}}
            case "GET", "queues":
                return 200, {"queues": [{"name": "default", "weight": 1, "used": {"gpu": 2.5, "memory": 2**34}}]}
            case "GET", "queues", "research/vision":
                return 200, {"name": "research/vision", "weight": 3, "guaranteed": {"gpu": 8}, "limit": {"gpu": 16}}
            case "PUT", "queues", name:
                return 200, {"name": name, **body}
            case "GET", "events":
                since = int(query.get("since", len(fake.events)))
                if since + 1 < fake.oldest_event:
                    return 410, {"status": 410, "detail": f"events are kept from {fake.oldest_event} on"}
                lines = [f"id: {e['seq']}\ndata: {json.dumps(e)}\n\n" for e in fake.events if e["seq"] > since]
                return 200, "".join(lines).encode()
        raise KeyError(path)

    def _problem(self, status: int, detail: str, headers: dict[str, str] | None = None, **more: str) -> None:
        self._send(
            status,
            json.dumps({"status": status, "detail": detail, **more}).encode(),
            "application/problem+json",
            headers,
        )

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
