"""`/openapi.json`: made from the table of routes and the Structs that are really decoded, so it cannot tell another story."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched import __version__
from hetsched.api import schemas
from hetsched.api.columns import MEDIA as COLUMNS

if TYPE_CHECKING:
    from hetsched.api.routes import Route

REF = "#/components/schemas/{name}"


@functools.cache
def document() -> dict[str, Any]:
    """The whole description."""
    from hetsched.api.routes import ROUTES  # routes → operations → here: the one circle, cut where it is cold

    said = [said for route in ROUTES for said in (route.reads, *route.answers.values())]
    shapes = [*dict.fromkeys(shape for one in said for shape in _shapes(one)), schemas.ProblemBody]
    refs, components = msgspec.json.schema_components(shapes, ref_template=REF)
    known = dict(zip(shapes, refs, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(public_path(route.path), {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "hetsched", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


BINARY = {"type": "string", "format": "binary"}
"""Described in docs/http.md, by tables and not by a schema."""


def public_path(path: str) -> str:
    """Without the expressions of the router: `/v1/tasks/{id}`."""
    return re.sub(r"\{(\w+):[^}]+\}", r"{\1}", path)


def _shapes(said: Any) -> tuple[Any, ...]:
    """The Structs that a route reads or answers, media left out: none, one, or one of several."""
    found = said if isinstance(said, tuple) else (said,)
    return tuple(shape for shape in found if shape is not None and not isinstance(shape, str))


def _schema(said: Any, known: dict[Any, Any]) -> dict[str, Any]:
    found = [known[shape] for shape in _shapes(said)]
    schema: dict[str, Any] = found[0] if len(found) == 1 else {"oneOf": found}
    return schema


def _operation(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": (route.handler.__doc__ or "").strip(),
        "parameters": _parameters(route),
        "responses": {str(status): _answer(status, shape, known) for status, shape in route.answers.items()},
    }
    operation["responses"]["default"] = {
        "description": "refused",
        "content": {"application/problem+json": {"schema": {"$ref": REF.format(name="ProblemBody")}}},
    }
    if route.scope is not None:
        operation["security"] = [{"token": [route.scope]}]
    if route.reads is not None:
        schema = _schema(route.reads, known)
        content = {media: {"schema": BINARY if media == COLUMNS else schema} for media in route.media}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    in_path = re.findall(r"\{(\w+)", route.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path] + [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in route.parameters
    ]


def _answer(status: int, shape: Any, known: dict[Any, Any]) -> dict[str, Any]:
    said = {200: "done", 202: "in the journal", 101: "a WebSocket"}[status]
    if isinstance(shape, str):
        shape = (shape,)
    if isinstance(shape, tuple) and isinstance(shape[0], str):
        content = {media: {"schema": {"type": "string"} if media.startswith("text/") else BINARY} for media in shape}
        return {"description": said, "content": content}
    if shape is None:
        return {"description": said} if status == 101 else {"description": said, "content": {"application/json": {}}}
    media = "application/problem+json" if status >= 400 else "application/json"
    return {"description": said, "content": {media: {"schema": _schema(shape, known)}}}
