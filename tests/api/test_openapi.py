"""The description tells of every route and of nothing else; what it says of tasks is what the model reads."""

from __future__ import annotations

import re

import msgspec
import pytest
from aiohttp import web

from hetsched.api.app import make_app
from hetsched.api.desk import Desk
from hetsched.api.openapi import document, public_path
from hetsched.api.routes import ROUTES
from hetsched.api.schemas import TaskBody
from hetsched.config import Config
from hetsched.daemon.auth import SCOPES, Tokens
from hetsched.model.read_task import FIELD_READERS

# CONTRACT, section 3.
PROMISED = """
POST /v1/schedule; POST /v1/plan; GET /v1/tasks; GET /v1/tasks/{id}; GET /v1/tasks/{id}/explain; GET /v1/tasks/{id}/logs;
DELETE /v1/tasks/{id}; POST /v1/tasks/cancel; POST /v1/tasks/{id}/finish; POST /v1/tasks/{id}/hold; POST /v1/tasks/{id}/release;
POST /v1/tasks/{id}/requeue; POST /v1/tasks/{id}/priority; GET /v1/nodes; GET /v1/nodes/{name}; POST /v1/nodes/{name}/drain;
POST /v1/nodes/{name}/cordon; POST /v1/nodes/{name}/uncordon; GET /v1/devices; GET /v1/queues; PUT /v1/queues/{name};
GET /v1/cluster; GET /v1/events; GET /metrics; GET /healthz; GET /readyz; GET /version; GET /openapi.json; GET /;
GET /v1/agents/connect
"""


def served() -> set[tuple[str, str]]:
    app = make_app(Desk(Config(), Tokens([]), hosts=None, insecure=False))
    found = set()
    for route in app.router.routes():
        assert route.resource is not None
        if route.method != "HEAD":
            found.add((route.method, route.resource.canonical))
    return found


def described() -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    assert {(method, public_path(path)) for method, path in served()} == described()


def test_every_call_of_the_contract_is_there() -> None:
    promised = {tuple(call.split()) for call in re.split(r";\s*", PROMISED.strip()) if call}
    assert promised <= described()


def test_the_fields_of_a_task_are_those_that_are_read() -> None:
    assert {field.name for field in msgspec.structs.fields(TaskBody)} == set(FIELD_READERS)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_says_what_it_does_and_who_may(route: object) -> None:
    assert route.summary and route.handler.__doc__  # type: ignore[attr-defined]
    assert route.scope is None or route.scope in SCOPES  # type: ignore[attr-defined]


def test_operation_ids_are_unique_and_references_lead_somewhere() -> None:
    found = document()
    ids = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))
    text = msgspec.json.encode(found).decode()
    for name in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert name in found["components"]["schemas"]


def test_longer_paths_come_before_the_shorter_ones_that_would_swallow_them() -> None:
    seen: list[tuple[str, str]] = []
    for route in ROUTES:
        for method, path in seen:
            if method == route.method and path.endswith("{id:.+}"):
                assert not route.path.startswith(path + "/"), f"{path} swallows {route.path}"
        seen.append((route.method, route.path))
    assert isinstance(web.Application(), web.Application)
