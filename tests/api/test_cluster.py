"""Nodes, devices, queues, the whole, and the metrics about them."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess

NODE = {
    "name": "m1",
    "cpu": 8,
    "memory": "16Gi",
    "devices": [{"kind": "gpu", "model": "A100", "count": 2, "memory": "40Gi"}],
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with tempfile.TemporaryDirectory(prefix="hs-") as name, DaemonProcess(Path(name)) as process:
        yield process


async def test_a_node_and_its_devices_are_shown_with_what_the_agent_reads(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, NODE):
        node = next(node for node in daemon.get("/v1/nodes").json["nodes"] if node["name"] == "m1")
        assert node["state"] == "ready" and node["connected"] and node["cpu"] == 8
        device = next(d for d in daemon.get("/v1/devices").json["devices"] if d["node"] == "m1" and d["id"] == "gpu-0")
        assert device["health"] == "healthy" and device["reading"]["utilization_percent"] == 42.0
        assert device["reading"]["age_seconds"] >= 0
    await asyncio.sleep(0.1)
    node = daemon.get("/v1/nodes/m1").json
    assert node["state"] == "silent" and not node["connected"]


async def test_drain_cordon_uncordon(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, NODE):
        assert daemon.post("/v1/nodes/m1/drain").json["state"] == "draining"
        assert daemon.post("/v1/nodes/m1/uncordon").json["state"] == "ready"
        assert daemon.post("/v1/nodes/m1/cordon", {}).json["state"] == "cordoned"
        assert daemon.post("/v1/nodes/m1/uncordon").json["state"] == "ready"


def test_a_queue_is_made_and_changed(daemon: DaemonProcess) -> None:
    body = {"weight": 2, "guaranteed": {"gpu": 8, "cpu": 4}, "limit": {"gpu": 16, "memory": "1Ti"}}
    made = daemon.call("PUT", "/v1/queues/research/vision", body)
    assert made.status == 200 and made.json["weight"] == 2 and made.json["limit"]["memory"] == 2**40
    assert daemon.get("/v1/queues/research/vision").json["guaranteed"]["gpu"] == 8
    names = [queue["name"] for queue in daemon.get("/v1/queues").json["queues"]]
    assert "research/vision" in names and "research" in names


def test_the_cluster_says_who_leads_and_how_durable_a_202_is(daemon: DaemonProcess) -> None:
    cluster = daemon.get("/v1/cluster").json
    assert cluster["epoch"] >= 1 and cluster["leader"].endswith(str(daemon.port)) and cluster["durability"] == "memory"
    assert set(cluster["lanes"]) == {"immediate", "batch", "backoff"}


def test_version_and_health(daemon: DaemonProcess) -> None:
    assert daemon.get("/version").json["name"] == "hetsched"
    assert daemon.get("/healthz").json["status"] == "ok"
    assert daemon.get("/readyz").json["status"] == "ready"
    assert "text/html" in daemon.get("/").headers["content-type"]


async def test_the_metrics_have_the_names_of_the_contract(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, NODE) as agent:
        daemon.submit(
            {"id": "victim", "qos": "background", "kind": "training", "resources": {"gpu": 2}}, Prefer="wait=5"
        )
        await agent.until(lambda: "victim" in agent.running)
        await asyncio.to_thread(
            daemon.submit, {"id": "urgent", "qos": "critical", "resources": {"gpu": 1}}, Prefer="wait=5"
        )
        await agent.until(lambda: "urgent" in agent.running)
        text = daemon.get("/metrics").body.decode()
        await agent.end("urgent")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {sample.name: sample for family in families.values() for sample in family.samples}

    latency = families["scheduler_e2e_latency_seconds"]
    assert latency.type == "histogram" and {"task_type", "qos_level"} <= set(latency.samples[0].labels)
    depth = {sample.labels["queue_name"] for sample in families["scheduler_queue_depth"].samples}
    assert depth == {"immediate", "batch", "backoff"}
    preemption = samples["scheduler_preemptions_total"]
    assert preemption.labels == {"victim_qos": "background", "preemptor_qos": "critical"} and preemption.value == 1
    for name in ("queue_wait_seconds", "completion_seconds", "fragmentation_ratio", "devices", "pending_tasks", "attempts",
                 "journal_commit_seconds", "agents_connected", "batch_size", "batch_window_seconds", "leader", "epoch"):  # fmt: skip
        assert f"hetsched_{name}" in families, name
    for name in families:
        assert re.match(r"(hetsched|scheduler)_", name)
    for family in families.values():
        for sample in family.samples:
            assert not {"urgent", "victim"} & set(sample.labels.values()), "a task's id is no label"


def test_a_flood_of_task_types_is_bounded() -> None:
    from hetsched.metrics import MOST_TYPES, OTHER, Metrics

    metrics = Metrics()
    assert {metrics.task_type(f"t{i}") for i in range(500)} == {f"t{i}" for i in range(MOST_TYPES)} | {OTHER}


def test_profiles_are_exported_and_imported(daemon: DaemonProcess) -> None:
    row = {"type": "render", "model": "A100", "size": "1", "times": [1.5, 2.5], "runs": 7}
    assert daemon.post("/v1/profiles", {"profiles": [row]}).json == {"imported": 1}
    (found,) = daemon.get("/v1/profiles?type=render&times=true").json["profiles"]
    assert {name: found[name] for name in row} == row and found["p50"] == 1.5
    assert "times" not in daemon.get("/v1/profiles").json["profiles"][0]
    refused = daemon.post("/v1/profiles", {"profiles": [{**row, "times": []}]})
    assert refused.status == 422 and refused.json["errors"][0]["pointer"] == "/profiles/0/times"
    kept = len(daemon.get("/v1/profiles").json["profiles"])
    assert f"hetsched_profiles {kept}.0" in daemon.get("/metrics").body.decode()
