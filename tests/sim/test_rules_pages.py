"""The examples of `docs/rules/`: each page's scenario is run, and what the page says happened did happen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sim.worlds import Run

PAGES = sorted((Path(__file__).parents[2] / "docs" / "rules").glob("[!R]*.md"))
BESIDE = ("ranking.md", "scorers.md", "profiles.md", "plan-and-explain.md", "reasons.md")
SCREEN_ROWS, SCREEN_COLUMNS = 50, 120
EXAMPLE = re.compile(r"```yaml\n(.*?)```.*?```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", [*PAGES, *(PAGES[0].parents[1] / name for name in BESIDE)], ids=lambda page: page.stem)
def test_a_page_is_at_most_a_screen(page: Path) -> None:
    rows = sum(max(1, -(-len(line) // SCREEN_COLUMNS)) for line in page.read_text().splitlines())
    assert rows <= SCREEN_ROWS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_example_of_a_page_happens(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    examples = EXAMPLE.findall(text)
    assert examples
    for scenario, said in examples:
        run = Run(tmp_path, scenario)
        assert run.code == 0
        happened = {(event["t"], event["event"], event.get("task"), event.get("node")) for event in run.events}
        for line in said.splitlines():
            at, event, task, *node = line.split()  # and, where the page is about that, on which node
            assert (float(at), event, task, *node) in {one[: 3 + len(node)] for one in happened}, line
