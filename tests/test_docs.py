"""The documents keep up with the code: links lead somewhere, and every command, call, key and file that exists is named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from hetsched import __version__
from hetsched.cli.table import TABLE

LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)\s]*)?\)")
FILE = re.compile(r"`((?:_core|api|agent|cli|config|daemon|model|policy|scheduler|store|sim)/[\w/]+\.(?:py|pxi|md))`")


def documents(root: Path) -> list[Path]:
    return [root / "README.md", *sorted(root.glob("docs/**/*.md")), root / "loadtest" / "README.md"]


def test_links_lead_somewhere(root: Path) -> None:
    broken = [
        f"{document.relative_to(root)}: {target}"
        for document in documents(root)
        for target in LINK.findall(document.read_text())
        if not (document.parent / target).exists()
    ]
    assert not broken


def test_every_document_is_reached_from_the_readme(root: Path) -> None:
    reached, ahead = set[Path](), [root / "README.md"]
    while ahead:
        document = ahead.pop()
        if document not in reached:
            reached.add(document)
            targets = [(document.parent / target).resolve() for target in LINK.findall(document.read_text())]
            ahead += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert [str(document.relative_to(root)) for document in documents(root) if document not in reached] == []


def test_files_that_are_named_exist(root: Path) -> None:
    missing = [
        f"{document.relative_to(root)}: {name}"
        for document in documents(root)
        for name in FILE.findall(document.read_text())
        if not (root / "hetsched" / name).exists()
    ]
    assert not missing


def test_the_path_of_a_task_names_files_that_exist(root: Path) -> None:
    text = (root / "docs" / "architecture.md").read_text()
    block = text.split("## The path of a task")[1].split("```")[1]
    files = re.findall(r"(?:_core|api|agent|daemon|scheduler|store)/[\w/]+\.\w+", block)
    assert len(files) >= 12
    assert [name for name in files if not (root / "hetsched" / name).exists()] == []


def test_every_command_is_documented(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text()
    words = set(re.findall(r"[a-z]+", text))
    assert [name for name in TABLE if not set(name.split()) <= words] == []


def test_every_call_is_documented(root: Path) -> None:
    from hetsched.api.routes import ROUTES

    text = (root / "docs" / "http.md").read_text()
    # "/v1/tasks/{id:.+}/hold" is written "/v1/tasks/{id}/hold" or, after its first kin, "/hold".
    paths = {re.sub(r":[^}]*}", "}", route.path) for route in ROUTES}
    assert [
        path for path in sorted(paths) if f"`{path}" not in text and f" {path}" not in text and _tail(path) not in text
    ] == []


def _tail(path: str) -> str:
    return f"`/{path.rsplit('/', 1)[1]}`"


def test_every_metric_is_documented(root: Path) -> None:
    text = (root / "docs" / "operations.md").read_text()
    code = "".join((root / "hetsched" / name).read_text() for name in ("metrics.py", "daemon/measure.py"))
    names = set(re.findall(r'"((?:hetsched|scheduler)_[a-z0-9_]+)"', code))
    assert len(names) > 20
    assert sorted(name for name in names if f"`{name}" not in text) == []


def test_every_option_of_the_load_generator_has_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    from loadtest.options import parse

    with pytest.raises(SystemExit) as stopped:
        parse(["--help"])
    assert stopped.value.code == 0
    assert "--rps" in capsys.readouterr().out


def test_the_version_has_its_chapter_among_the_changes(root: Path) -> None:
    assert f"## {__version__}" in (root / "CHANGELOG.md").read_text()


def test_the_project_names_itself_and_its_program(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["name"] == "hetsched"
    assert project["scripts"] == {"hetsched": "hetsched.cli:main"}
    assert project["requires-python"] == ">=3.11,<3.14"


@pytest.mark.parametrize("target", ["setup", "demo", "test", "checked", "faults", "bench", "clean"])
def test_the_makefile_has_what_the_documents_promise(root: Path, target: str) -> None:
    assert re.search(rf"^{target}:", (root / "Makefile").read_text(), re.MULTILINE)


def test_ci_runs_what_people_run(root: Path) -> None:
    script = root / ".ci" / "run"
    assert "exec make test" in script.read_text()
    assert script.stat().st_mode & 0o111
