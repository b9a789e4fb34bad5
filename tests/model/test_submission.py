"""Every form of a submission becomes the list of tasks that it stands for; a fault refuses its own task only."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.errors import Problem
from hetsched.model import Rejection, Task, TaskDefaults, parse_submission
from hetsched.model.read_submission import spots

SMALL = TaskDefaults(array_tasks=100, bulk_tasks=10)


def told(raw: Any, defaults: TaskDefaults = SMALL) -> list[str | None]:
    """Ids in order; refused ones with a minus."""
    items = parse_submission(raw, defaults).items
    return [f"-{item.id}" if isinstance(item, Rejection) else item.id for item in items]


def body(ident: str, **more: Any) -> dict[str, Any]:
    return {"id": ident, "resources": {"cpu": 1}, **more}


def test_one_task_is_single() -> None:
    submission = parse_submission(body("a"))
    assert submission.single
    assert [item.id for item in submission.items] == ["a"]
    assert submission.array is None


def test_lists_of_forms_are_flattened_in_order() -> None:
    forms = [body("a"), {"template": body("b"), "count": 2}, [body("c")], {"tasks": [body("d")]}]
    assert told(forms) == ["a", "b-0", "b-1", "c", "d"]


def test_a_fault_harms_no_neighbour() -> None:
    submission = parse_submission([body("a"), body("b", cpu=1), "c", body("d")])
    assert told([body("a"), body("b", cpu=1), "c", body("d")]) == ["a", "-b", "-None", "d"]
    assert [item.index for item in submission.items if isinstance(item, Rejection)] == [1, 2]


def test_an_array_is_named_by_its_first_and_its_count() -> None:
    submission = parse_submission({"template": body("s"), "count": 3})
    assert submission.array == ("s-0", 3)
    assert told({"template": {"resources": {}}, "count": 2}) == [None, None]


def test_the_entries_of_an_array_replace_fields() -> None:
    template = {"resources": {"cpu": 1}, "duration": 5}
    light = parse_submission({"template": template, "tasks": [{"id": "a", "duration": 7}, {"id": "b"}, {"id": ""}]})
    assert [item.duration for item in light.items if isinstance(item, Task)] == [7.0, 5.0]
    heavy = parse_submission({"template": template, "tasks": [{"id": "a", "resources": {"gpu": 1}, "deadline": 3}]})
    assert isinstance(heavy.items[0], Task)
    assert heavy.items[0].resources.cpu_milli == 0
    assert heavy.items[0].deadline_ns == 3_000_000_000


def test_a_bad_template_refuses_each_by_its_id() -> None:
    raw = {"template": body("s", priorty=1), "count": 2}
    assert told(raw) == ["-s-0", "-s-1"]
    assert places(raw) == ["/template/priorty"] * 2


def places(raw: Any, defaults: TaskDefaults = SMALL) -> list[str]:
    """Where in the body each fault of each refused item is said to stand."""
    items, found = parse_submission(raw, defaults).items, list(spots(raw, defaults))
    assert len(items) == len(found)
    pairs = [(spot, item) for spot, item in zip(found, items, strict=True) if isinstance(item, Rejection)]
    return [spot.of(error["pointer"]) for spot, item in pairs for error in item.problem.errors]


BAD = {"resources": {"cpu": 1}, "prio": 1, "qos": "high"}


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (body("a", x=1), ["/x"]),
        ([body("a", x=1), body("b"), body("c", y=1)], ["/0/x", "/2/y"]),
        ([[body("a")], [[body("b", x=1)], 3]], ["/1/0/0/x", "/1/1"]),
        ({"tasks": [body("a"), body("b", x=1)]}, ["/tasks/1/x"]),
        ({"template": BAD, "count": 1}, ["/template/prio", "/template/qos"]),
        ({"template": BAD, "tasks": [{"id": "a"}]}, ["/template/prio", "/template/qos"]),
        ({"template": BAD, "tasks": [{"id": "a", "qos": "low"}]}, ["/template/prio", "/tasks/0/qos"]),
        ({"template": BAD, "tasks": [{"id": "a", "qos": "critical"}]}, ["/template/prio"]),
        ({"template": body("t"), "tasks": [{"id": "a", "x": 1}, {}, 3]}, ["/tasks/0/x", "/tasks/2"]),
        ({"template": {"name": "n"}, "tasks": [{"id": "a"}]}, ["/tasks/0"]),
        ({"template": {"resources": {"cpu": -1}}, "tasks": [{}]}, ["/template/resources/cpu"]),
        ({"template": body("t"), "tasks": [{"resources": {"cpu": -1}}]}, ["/tasks/0/resources/cpu"]),
        ([{"template": body("t"), "count": 3}, body("a", x=1)], ["/1/x"]),
        ([body("a"), {"template": BAD, "count": 1}], ["/1/template/prio", "/1/template/qos"]),
        ([{"template": body("t"), "tasks": [{"x": 1}, {"id": "a"}]}, body("b", y=1)], ["/0/tasks/0/x", "/1/y"]),
        ([{"tasks": [[body("a", x=1)], body("b")]}, body("c", y=1)], ["/0/tasks/0/0/x", "/1/y"]),
        (
            [{"template": body("t"), "count": 0}, {"template": 1}, {"template": {}, "cuont": 1}, body("c", y=1)],
            ["/0/count", "/1/template", "/2/cuont", "/3/y"],
        ),
        ([{"template": body("t"), "tasks": []}, {"template": body("t"), "tasks": 3}], ["/0/tasks", "/1/tasks"]),
    ],
)
def test_a_fault_is_told_where_it_stands_in_a_body_of_whatever_form(raw: Any, where: list[str]) -> None:
    assert places(raw) == where


@pytest.mark.parametrize(
    ("raw", "pointer"),
    [
        (None, ""),
        (3, ""),
        ("x", ""),
        ([], ""),
        ({"tasks": []}, "/tasks"),
        ({"tasks": {}}, "/tasks"),
        ({"tasks": [body("a")], "count": 1}, "/count"),
        ({"template": 1, "count": 1}, "/template"),
        ({"template": body("a")}, ""),
        ({"template": body("a"), "count": 1, "tasks": []}, ""),
        ({"template": body("a"), "count": 0}, "/count"),
        ({"template": body("a"), "count": -1}, "/count"),
        ({"template": body("a"), "count": 10**9}, "/count"),
        ({"template": body("a"), "count": 1.0}, "/count"),
        ({"template": body("a"), "count": True}, "/count"),
        ({"template": body("a"), "count": None}, "/count"),
        ({"template": body("a"), "cuont": 3}, "/cuont"),
        ({"template": body("a"), "tasks": 3}, "/tasks"),
        ({"template": body("a"), "tasks": []}, "/tasks"),
        ([body("a")] * 11, ""),
    ],
)
def test_a_body_without_a_form_is_refused_whole(raw: Any, pointer: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_submission(raw, SMALL)
    assert caught.value.errors[0]["pointer"] == pointer


@pytest.mark.parametrize("beside", [{}, {"template": {}}, {"tasks": []}, {"queue": "q"}])
def test_a_graph_among_tasks_is_told_where_it_goes(beside: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        told({"graph": {"operators": []}, **beside})
    (fault,) = caught.value.errors
    assert fault["pointer"] == "/graph" and "POST /v1/graphs" in fault["detail"]


def test_an_id_with_its_number_is_still_an_id() -> None:
    assert told({"template": body("x" * 126), "count": 1}) == ["x" * 126 + "-0"]
    assert told({"template": body("x" * 126), "count": 11})[10].startswith("-x")  # type: ignore[union-attr]


def test_entries_that_are_no_objects_are_refused_alone() -> None:
    assert told({"template": body("a"), "tasks": [{"id": "b"}, 3, {"id": "c"}]}) == ["b", "-None", "c"]
