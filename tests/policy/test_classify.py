"""What sort of work a task is where nobody said."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.model import parse_task
from hetsched.policy.classify import task_type


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"resources": {"cpu": 1}}, "batch"),
        ({"resources": {"gpu": 1}}, "batch"),
        ({"resources": {"gpu": 8}, "checkpoint": 600}, "training"),
        ({"resources": {"gpu": 8}, "gang": {"id": "g", "size": 2}}, "training"),
        ({"resources": {"gpu": 1}, "qos": "critical"}, "inference"),
        ({"resources": {"gpu": 0.5}}, "inference"),
        ({"resources": {"gpu": 0.5}, "estimate": 60}, "batch"),
        ({"resources": {"cpu": 2}, "qos": "critical"}, "service"),
        ({"resources": {"cpu": 2}, "qos": "critical", "time_limit": 60}, "batch"),
        ({"resources": {"gpu": 8}, "checkpoint": 600, "kind": "render"}, "render"),
    ],
)
def test_a_task_is_classified_from_its_fields(body: dict[str, Any], expected: str) -> None:
    assert task_type(parse_task({"id": "t", **body})) == expected
