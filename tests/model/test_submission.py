"""Every form of a submission becomes the list of tasks that it stands for; a fault refuses its own task only."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.errors import Problem
from hetsched.model import Rejection, Task, TaskDefaults, parse_submission

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
    assert submission.refusal() is None


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
    refusal = parse_submission(raw).refusal()
    assert refusal is not None
    assert refusal.errors[0]["pointer"] == "/template/priorty"


def test_a_list_in_which_all_is_refused_says_so_once() -> None:
    refusal = parse_submission([body("a", x=1), body("b", y=1)]).refusal()
    assert refusal is not None
    assert [error["pointer"] for error in refusal.errors] == ["/0/x", "/1/y"]


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
