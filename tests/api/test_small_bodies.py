"""The small bodies and the queries: what is wrong is named with its place, and a slip with the name that was meant."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hetsched.api import schemas
from hetsched.api.body import typed
from hetsched.api.routes import ROUTES
from hetsched.errors import Problem
from hetsched.scheduler.view_profiles import read_profiles
from tests.daemon.process import DaemonProcess

READ = (
    schemas.CancelBody,
    schemas.FinishBody,
    schemas.HandoverBody,
    schemas.PriorityBody,
    schemas.ProfilesBody,
    schemas.QueueBody,
)
ROW = {"type": "render", "model": "A100", "size": "4", "times": [10.0, 11.0], "runs": 7}


def faults(body: Any, shape: Any) -> dict[str, str]:
    with pytest.raises(Problem) as refused:
        typed(body, shape)
    assert refused.value.status == 422
    return {fault["pointer"]: fault["detail"] for fault in refused.value.errors}


@pytest.mark.parametrize("shape", READ)
def test_two_letters_swapped_are_answered_with_the_field_that_was_meant(shape: Any) -> None:
    for field in msgspec.structs.fields(shape):
        if len(field.name) > 2:
            slip = field.name[:-2] + field.name[-1] + field.name[-2]
            assert faults({slip: 1}, shape)[f"/{slip}"] == f'unknown field "{slip}"; did you mean "{field.name}"?'
    assert faults({"~/x": 1}, shape) == {"/~0~1x": 'unknown field "~/x"'}


def test_all_of_them_at_once_and_in_rows_too() -> None:
    body = {"profiles": [ROW, {**ROW, "tims": 1}, 3, {**ROW, "foo": 2}], "profile": 1}
    assert list(faults(body, schemas.ProfilesBody)) == ["/profiles/1/tims", "/profiles/3/foo", "/profile"]


def test_what_is_missing_is_told_where_it_belongs() -> None:
    assert faults({}, schemas.PriorityBody) == {"/priority": "is required"}
    assert faults({"profiles": [{k: v for k, v in ROW.items() if k != "size"}]}, schemas.ProfilesBody) == {
        "/profiles/0/size": "is required"
    }


def test_every_field_of_an_export_is_taken_back() -> None:
    derived = {"p50": 10.0, "p90": None, "error": 0.1, "estimate_error": None, "replaces_estimate": False}
    body = typed({"profiles": [{**ROW, **derived}], "lag": 0.5}, schemas.ProfilesBody)
    (profile,) = read_profiles(body.profiles, 10)
    assert (profile.task_type, profile.model, profile.size, profile.runs) == ("render", "A100", "4", 7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("size", size) for size in ("7x", "zz", "", "3", "cpu", "cpu6", "0", "PART")),
        *(("type", name) for name in ("", "two words", "x" * 65, "a/b")),
        *(("model", name) for name in ("x" * 65, "a\nb")),
        *(("times", times) for times in ([], [0.0], [-1.0], [1e300])),
        ("runs", -1),
    ],
)
def test_a_profile_that_no_task_could_match_is_refused(field: str, value: Any) -> None:
    body = typed({"profiles": [ROW, {**ROW, field: value}]}, schemas.ProfilesBody)
    with pytest.raises(Problem) as refused:
        read_profiles(body.profiles, 10)
    assert [fault["pointer"] for fault in refused.value.errors] == [f"/profiles/1/{field}"]


# ---------------------------------------------------------------------- over HTTP


BAD_QUERIES = {"state": "foo", "qos": "urgent", "since": "yesterday", "limit": "x", "cursor": "%21", "label": "x"}


@pytest.mark.parametrize("parameter", [*BAD_QUERIES, "unheard-of"])
def test_a_bad_query_is_told_as_one(daemon: DaemonProcess, parameter: str) -> None:
    (route,) = [route for route in ROUTES if route.path == "/v1/tasks" and route.method == "GET"]
    assert set(route.parameters) - {"queue"} == set(BAD_QUERIES)
    problem = daemon.get(f"/v1/tasks?{parameter}={BAD_QUERIES.get(parameter, '1')}").problem()
    assert (problem["status"], problem["title"]) == (400, "The query cannot be read")
    (fault,) = problem["errors"]
    assert (fault["pointer"], fault["parameter"]) == (f"/{parameter}", parameter)
    assert problem["detail"] == f"query parameter {parameter!r} {fault['detail']}"


def test_a_bad_label_in_a_body_is_no_query(daemon: DaemonProcess) -> None:
    problem = daemon.post("/v1/tasks/cancel", {"label": "x"}).problem()
    assert (problem["status"], problem["errors"][0]["pointer"]) == (422, "/label")


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"template": {"resorces": {"cpu": 1}}, "tasks": [{"id": "zz5"}]}, {"/template/resorces", "/tasks/0"}),
        ([{"template": {"resources": {"cpu": -1}}, "count": 2}], {"/0/template/resources/cpu"}),
        (
            [{"template": {"resources": {"cpu": 1}, "qos": "x"}, "tasks": [{}]}, {"id": "!"}],
            {"/0/template/qos", "/1/id", "/1"},
        ),
    ],
)
def test_pointers_lead_into_templates(daemon: DaemonProcess, body: Any, pointers: set[str]) -> None:
    assert {error["pointer"] for error in daemon.submit(body).problem()["errors"]} == pointers
    assert {error["pointer"] for error in daemon.post("/v1/plan", body).problem()["errors"]} == pointers


def test_pointers_of_graphs_do_too(daemon: DaemonProcess) -> None:
    body = {"template": {"queu": "x"}, "operators": [{"id": "a", "cots": 1, "resources": {"cpu": 1}}]}
    errors = daemon.post("/v1/graphs", body).problem()["errors"]
    told = {error["pointer"]: error["detail"] for error in errors}
    assert told["/template/queu"] == 'unknown field "queu"; did you mean "queue"?'
    assert told["/operators/0/cots"] == 'unknown field "cots"; did you mean "cost"?'
