"""The examples of docs/plan-and-explain.md and docs/reasons.md happen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hetsched.model import parse_submission
from hetsched.scheduler import rehearse
from hetsched.scheduler.reasons import PRECEDENCE
from tests.scheduler.build import Story
from tests.scheduler.whatif import patient

DOCS = Path(__file__).parents[2] / "docs"
PAGE, REASONS = DOCS / "plan-and-explain.md", DOCS / "reasons.md"


def example_of(page: Path) -> tuple[dict[str, Any], list[str]]:
    """What happens by the page, and what is then told."""
    found = re.search(r"```yaml\n(.*?)```.*?```text\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1]), found[2].splitlines()


def test_the_page_tells_what_happens() -> None:
    example, told_there = example_of(PAGE)
    story = Story(example["nodes"])
    for body in example["submit"]:
        story.submit(body)
    story.wait(0.1)
    image = rehearse.take(story.scheduler)
    said = set()
    for ident in ("w1", "w2"):
        advice = rehearse.advise(image, ident, story.now_ns, patient)
        assert advice is not None
        said |= {f"{ident}: {remedy['detail']}" for remedy in advice.remedies}
    told = rehearse.plan(image, parse_submission(example["plan"]), story.now_ns, patient)
    assert isinstance(told, dict)
    task = told["tasks"][0]
    victims = ", ".join(victim["id"] for victim in task["victims"])
    said.add(f"plan: {task['starts']} on {task['placement']['node']}, evicts {victims}")
    assert set(told_there) <= said


def test_the_reasons_are_told() -> None:
    example, told_there = example_of(REASONS)
    story = Story(example["nodes"])
    for queue in example["queues"]:
        story.queue(**queue)
    for body in example["submit"]:
        story.submit(body)
        story.wait(0.1)
    waiting = [body["id"] for body in example["submit"] if story.node_of(body["id"]) is None]
    assert [f"{ident}: {story.scheduler.view.explain(ident)['reason']}" for ident in waiting] == told_there


def test_every_reason_is_on_the_page_in_the_order_of_precedence() -> None:
    page = re.findall(r"^\| `(\w+)` \|", REASONS.read_text(), re.MULTILINE)
    assert page == [str(reason) for reason in PRECEDENCE]
