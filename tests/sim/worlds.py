"""Small worlds for the simulator's stories: a scenario as plain values in, its log and summary out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from hetsched.sim import simulate


class Run:
    """One run of a scenario: exit code, log, summary, bytes of the log."""

    def __init__(self, folder: Path, scenario: dict[str, Any] | str, **options: Any) -> None:
        path, log = folder / "scenario.yaml", folder / "events.jsonl"
        path.write_text(scenario if isinstance(scenario, str) else json.dumps(scenario))
        log.unlink(missing_ok=True)
        out = io.StringIO()
        self.code = simulate(path, events=log, as_json=True, out=out, **options)
        self.bytes = log.read_bytes() if log.exists() else b""
        self.events = [json.loads(line) for line in self.bytes.splitlines()]
        self.summary = json.loads(out.getvalue()) if self.code == 0 else {}

    def story(self, task: str) -> list[tuple[float, str]]:
        """(t, event) of everything that happened to a task."""
        return [(event["t"], event["event"]) for event in self.events if event.get("task") == task]

    def of(self, name: str) -> list[dict[str, Any]]:
        """All events of one name."""
        return [event for event in self.events if event["event"] == name]


def world(*events: dict[str, Any], nodes: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """A scenario on one node of 8 cores and 4 GPUs, unless other nodes are given. Critical tasks are placed at once."""
    node = {"name": "n", "cpu": 8, "memory": "64Gi", "devices": [{"kind": "gpu", "model": "A100", "count": 4}]}
    return {"nodes": [node] if nodes is None else nodes, "events": list(events), **more}


def task(ident: str, **more: Any) -> dict[str, Any]:
    """A critical task of one core for ten seconds: decided in its instant, so that times are round."""
    return {"id": ident, "qos": "critical", "resources": {"cpu": 1}, "duration": 10, **more}
