"""Graphs over HTTP, by the clients that people use, on a real daemon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hetsched.client import Client
from hetsched.client.aio import AsyncClient
from hetsched.errors import Conflict, NotFound, Problem
from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess

NODE = {"name": "gn", "cpu": 8, "memory": "16Gi"}


def graph(ident: str, *names: str, **more: Any) -> dict[str, Any]:
    ops = [{"id": n, "cost": 60, **({"after": [names[at - 1]]} if at else {})} for at, n in enumerate(names)]
    return {"id": ident, "template": {"resources": {"cpu": 1}}, "operators": ops, **more}


@pytest.fixture
def client(daemon: DaemonProcess) -> Client:
    return Client(f"http://127.0.0.1:{daemon.port}", daemon.token)


def test_a_graph_is_taken_once_and_shown(daemon: DaemonProcess, client: Client) -> None:
    answer = daemon.post("/v1/graphs", graph("one", "a", "b"))
    assert answer.status == 202 and answer.headers["location"] == "/v1/graphs/one"
    assert (answer.json["id"], answer.json["state"], answer.json["operators"]) == ("one", "queued", 2)
    assert daemon.post("/v1/graphs", graph("one", "a", "b")).status == 202
    problem = daemon.post("/v1/graphs", graph("one", "a", "c")).problem()
    assert (problem["status"], problem["errors"][0]["pointer"]) == (409, "/id")
    shown = client.graph("one")
    assert shown["unplaceable"] == ["a", "b"]  # there is no node
    assert [one["id"] for one in shown["operators"]] == ["a", "b"]
    assert "operators" not in client.graph("one", operators=False)
    assert "one" in [line["id"] for line in client.graphs()["graphs"]]


async def test_a_graph_runs_and_ends(daemon: DaemonProcess, client: Client) -> None:
    async with TestAgent(daemon, NODE) as agent:
        await asyncio.to_thread(client.submit_graph, graph("run", "a", "b"))
        for task in ("run/a", "run/b"):
            await asyncio.to_thread(daemon.until_state, task, "running")
            await agent.end(task)
        await asyncio.to_thread(daemon.until_state, "run/b", "succeeded")
        shown = await asyncio.to_thread(client.graph, "run")
        assert (shown["state"], shown["progress"]) == ("succeeded", 1.0)
        assert shown["critical_path"]["operators"] == ["a", "b"]
        with pytest.raises(Conflict):
            await asyncio.to_thread(client.cancel_graph, "run")


def test_cancelling(client: Client) -> None:
    client.submit_graph(graph("gone", "a", "b"))
    assert client.cancel_graph("gone") == {"id": "gone", "state": "cancelled"}
    for call in (client.graph, client.cancel_graph):
        with pytest.raises(NotFound):
            call("nobody")


def test_without_an_id_the_client_makes_one_up(client: Client) -> None:
    body = graph("", "a")
    del body["id"]
    assert client.submit_graph(body)["id"].startswith("graph-")


def test_the_client_for_asyncio(client: Client) -> None:
    aio = AsyncClient(client)

    async def talk() -> tuple[Any, Any]:
        await aio.call(Client.submit_graph, graph("aio", "a"))
        return await aio.call(Client.graph, "aio"), await aio.call(Client.cancel_graph, "aio")

    shown, cancelled = asyncio.run(talk())
    assert shown["id"] == "aio" and cancelled["state"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (graph("bad", "a", "a"), "/operators/1/id"),
        ({"operators": [{"id": "a", "cost": 1, "resources": {"cpu": 1}, "after": ["a"]}]}, "/operators/0/after"),
        ({"operators": []}, "/operators"),
        ({"operators": [{"id": "a", "cost": -1, "resources": {"cpu": "1x"}}]}, "/operators/0/cost"),
        (graph("bad", "a", smples=5), "/smples"),
        ([], ""),
    ],
)
def test_a_body_that_breaks_a_rule_is_told_where(client: Client, body: Any, pointer: str) -> None:
    with pytest.raises(Problem) as refused:
        client._post("/v1/graphs", body)
    assert refused.value.status == 422
    assert pointer in [fault["pointer"] for fault in refused.value.errors]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/graphs", b"{", 400),
        ("POST", "/v1/graphs", b'{"operators": NaN}', 400),
        ("POST", "/v1/graphs", b"[" * 100_000, 400),
        ("POST", "/v1/graphs", b'{"operators": [{"id": "a", "cost": 1e999}]}', 400),
        ("GET", "/v1/graphs/nobody", None, 404),
        ("DELETE", "/v1/graphs/nobody", None, 404),
        ("GET", "/v1/graphs/nobody?operators=perhaps", None, 400),
        ("GET", "/v1/graphs?x=1", None, 400),
        ("PUT", "/v1/graphs", None, 405),
    ],
)
def test_what_is_no_call(daemon: DaemonProcess, method: str, path: str, body: bytes | None, status: int) -> None:
    headers = {"Content-Type": "application/json"} if body else None
    assert daemon.call(method, path, body, headers=headers).problem()["status"] == status
