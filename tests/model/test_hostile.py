"""Whatever comes in, the only answer beside a task is a Problem that names the place and the rule."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import Problem
from hetsched.model import Rejection, Submission, parse_json, parse_node, parse_queue, parse_submission, parse_task
from hetsched.model.read_task import FIELD_READERS

WRONG: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "\0",
    "x" * 200_000,
    [],
    [[]],
    {},
    {"a": {}},
    [None],
]


def check(problem: Problem) -> None:
    """It can be sent, it says where and why, and it stays small however large the body was."""
    assert problem.status in (400, 422)
    body = msgspec.json.encode(problem.body())
    assert len(body) < 60_000
    assert problem.errors
    for error in problem.errors:
        assert error["pointer"] == "" or error["pointer"].startswith("/")
        assert error["detail"]


def problem_of(raw: object) -> Problem | None:
    try:
        parse_task(raw)
    except Problem as problem:
        check(problem)
        return problem
    return None


@pytest.mark.parametrize("field", sorted(FIELD_READERS))
def test_no_field_takes_what_it_is_not(field: str) -> None:
    refused = 0
    for value in WRONG:
        problem = problem_of({"command": ["true"], "resources": {}, field: value})
        if problem is not None:
            refused += 1
            assert any(error["pointer"].startswith(f"/{field}") for error in problem.errors)
    assert refused >= len(WRONG) // 2
    assert problem_of({"command": ["true"], "resources": {}, field: None}) is not None


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"command": "echo hello"}, "/command"),
        ({"command": ["a\0b"]}, "/command/0"),
        ({"command": []}, "/command"),
        ({"command": [""]}, "/command/0"),
        ({"command": ["true", 1]}, "/command/1"),
        ({"env": {"A=B": "x"}}, "/env/A=B"),
        ({"env": {"": "x"}}, "/env/"),
        ({"env": {"A": "x\0"}}, "/env/A"),
        ({"env": {"A": 1}}, "/env/A"),
        ({"id": ""}, "/id"),
        ({"id": "a" * 129}, "/id"),
        ({"id": "caf\u00e9"}, "/id"),
        ({"id": "../../etc/passwd\n"}, "/id"),
        ({"gang": {"id": "g", "size": 0}}, "/gang/size"),
        ({"gang": {"id": "g", "size": 2, "min_size": 3}}, "/gang/min_size"),
        ({"gang": {"id": "g", "size": 10**9}}, "/gang/size"),
        ({"gang": {"size": 1}}, "/gang"),
        ({"gang": {"id": "g", "size": True}}, "/gang/size"),
        ({"retries": -1}, "/retries"),
        ({"retries": 10**9}, "/retries"),
        ({"priority": 1001}, "/priority"),
        ({"priority": 1.0}, "/priority"),
        ({"priority": True}, "/priority"),
        ({"deadline": "yesterday"}, "/deadline"),
        ({"deadline": -1}, "/deadline"),
        ({"deadline": True}, "/deadline"),
        ({"time_limit": 0}, "/time_limit"),
        ({"time_limit": 1e300}, "/time_limit"),
        ({"duration": -0.1}, "/duration"),
        ({"duration": float("inf")}, "/duration"),
        ({"qos": "urgent"}, "/qos"),
        ({"qos": ["critical"]}, "/qos"),
        ({"after": ["no spaces"]}, "/after/0"),
        ({"after": [{"when": "ended"}]}, "/after/0"),
        ({"after": [{"id": "a", "when": "later"}]}, "/after/0/when"),
        ({"tolerations": [{"key": "k", "operator": "Maybe"}]}, "/tolerations/0/operator"),
        ({"topology": {}}, "/topology"),
        ({"topology": {"same": "rack", "required": 1}}, "/topology/required"),
        ({"node_selector": {"zone": 5}}, "/node_selector/zone"),
        ({"labels": {"a": 1}}, "/labels/a"),
        ({"labels": {str(i): "x" for i in range(65)}}, "/labels"),
        ({"workdir": "relative"}, "/workdir"),
        ({"user": "root; rm"}, "/user"),
        ({"resources": []}, "/resources"),
        ({"resources": {"cpu": {"a": 1}}}, "/resources/cpu"),
        ({"resources": {"GPU": 1}}, "/resources/GPU"),
        ({"resources": {"gpu": {"count": 1.5, "share": 0.5}}}, "/resources/gpu/count"),
        ({"resources": {"gpu": {"share": 2}}}, "/resources/gpu/share"),
        ({"resources": {"gpu": {"cuont": 2}}}, "/resources/gpu/cuont"),
        ({"resources": {"gpu": 2**53 + 1}}, "/resources/gpu"),
        ({"resources": {f"k{i}": 1 for i in range(9)}}, "/resources"),
        ({"resources": {"a~/b": 1}}, "/resources/a~0~1b"),
        ({"priorty": 1}, "/priorty"),
        ({1: 1}, "/1"),
        ({("a",): 1}, "/('a',)"),
        ({"x" * 100_000: 1}, "/" + "x" * 125 + "..."),
    ],
)
def test_hostile_bodies_are_refused_by_name(body: dict[Any, Any], pointer: str) -> None:
    problem = problem_of({"resources": {}, **body})
    assert problem is not None
    assert pointer in [error["pointer"] for error in problem.errors]


def test_a_hundred_thousand_unknown_fields_cost_little() -> None:
    problem = problem_of({f"field{i}": i for i in range(100_000)})
    assert problem is not None
    assert len(problem.errors) == 50


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b'{"id": "a"', "line 1, column 11"),
        (b"{'id': 1}", "not JSON"),
        (b'{"id": 1} x', "not JSON"),
        (b"\xff\xfe{}", "not UTF-8 at byte 0"),
        (b'{"id": "\xc3\x28"}', "not UTF-8 at byte 8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"cpu": NaN}', "NaN"),
        (b'{"cpu": -Infinity}', "Infinity"),
        (b'{"cpu": 1e999}', "out of range"),
        (b'{"cpu": ' + b"9" * 5000 + b"}", "out of range"),
        (b"[" * 100_000, "nested deeper"),
        (b"[" * 33 + b"]" * 33, "nested deeper"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "nested deeper"),
        (b'{"a": 1, "a": 2}', '"a" twice'),
        (b'[{"r": {"gpu": 1, "gpu": 2}}]', '"gpu" twice'),
        (b'{"id": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'"tab\tinside"', "not JSON"),
        (b"nul", "not JSON"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(body: bytes, says: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_json(body)
    check(caught.value)
    assert caught.value.status == 400
    assert says in caught.value.detail


@pytest.mark.parametrize(
    "number", [b"NaN", b"-Infinity", b"1e999", b"-1e400", b"9" * 5000], ids=lambda number: ascii(number[:9])
)
def test_a_number_that_is_none_is_pointed_at(number: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse_json(b'[{"r": {"cpu": 1}}, {"r": {"a/b": [1, ' + number + b"]}}]")
    assert caught.value.errors[0]["pointer"] == "/1/r/a~1b/1"


def test_refusals_keep_no_frames_alive() -> None:
    read = parse_submission([1, {"a": 1}, [2], {"template": {"b": 1}, "tasks": [{}, 3]}, {"template": 4}])
    assert all(isinstance(item, Rejection) and item.problem.__traceback__ is None for item in read.items)


def test_a_doubled_key_is_pointed_at() -> None:
    with pytest.raises(Problem) as caught:
        parse_json(b'[1, {"r": {"gpu": 1, "gpu": 2}}]')
    assert caught.value.errors[0]["pointer"] == "/1/r/gpu"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from([*FIELD_READERS, "cpu", "gpu", "count", "template", "tasks", "size", "same", "devices", "name"])
hostile = st.recursive(
    values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5), max_leaves=30
)


@settings(max_examples=300, deadline=None)
@given(hostile)
def test_nothing_but_problems_ever_comes_out(raw: Any) -> None:
    problem_of(raw)
    for parse in (parse_submission, parse_node, parse_queue):
        try:
            result = parse(raw)
        except Problem as problem:
            check(problem)
            continue
        if isinstance(result, Submission):
            for item in result.items:
                if isinstance(item, Rejection):
                    check(item.problem)


@settings(max_examples=200, deadline=None)
@given(values)
def test_strict_json_agrees_with_json_on_what_is_legal(value: Any) -> None:
    try:
        body = json.dumps(value, allow_nan=False).encode()
    except (ValueError, TypeError):
        return
    try:
        assert parse_json(body) == json.loads(body)
    except Problem as problem:
        check(problem)
