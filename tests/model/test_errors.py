"""Every error of the tree has a code, a status and an RFC 9457 body."""

from __future__ import annotations

import pytest

from hetsched import errors
from hetsched.errors import STATUS, TITLE, Elsewhere, HetschedError, Problem

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, HetschedError)]


def test_codes_have_a_status_and_a_title() -> None:
    assert set(STATUS) == set(TITLE)


@pytest.mark.parametrize("kind", CLASSES)
def test_each_class_has_its_status_and_body(kind: type[HetschedError]) -> None:
    error = kind("so it is", url="http://b:7463/v1/tasks/t") if kind is Elsewhere else kind("so it is")
    assert error.status == STATUS[error.code]
    assert error.body().items() >= {"status": error.status, "detail": "so it is", "title": TITLE[error.code]}.items()


def test_what_is_elsewhere_with_nobody_to_ask_is_to_be_asked_for_again() -> None:
    assert Elsewhere("in b", cell="b").body().items() >= {"status": 503, "cell": "b"}.items()


def test_pointers_move_below_a_prefix() -> None:
    moved = Problem.at("/cpu", "no").under("/tasks/3")
    assert moved.errors == [{"pointer": "/tasks/3/cpu", "detail": "no"}]
    assert (moved.status, moved.code) == (422, "invalid")
