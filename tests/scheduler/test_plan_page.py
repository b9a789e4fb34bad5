"""The example of docs/plan-and-explain.md happens."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from hetsched.model import parse_submission
from hetsched.scheduler import rehearse
from tests.scheduler.build import Story
from tests.scheduler.whatif import patient

PAGE = Path(__file__).parents[2] / "docs" / "plan-and-explain.md"


def test_the_page_tells_what_happens() -> None:
    found = re.search(r"```yaml\n(.*?)```.*?```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    example = yaml.safe_load(found[1])
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
    assert set(found[2].splitlines()) <= said
