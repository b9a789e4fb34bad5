"""A fake daemon that the command line finds in the environment, and a caller that gives back code and output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hetsched.cli import main
from tests.cli.fake_daemon import TOKEN, FakeDaemon


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon()
    monkeypatch.setenv("HETSCHED_URL", fake.url)
    monkeypatch.setenv("HETSCHED_TOKEN", TOKEN)
    monkeypatch.setenv("HETSCHED_DATA", str(tmp_path / "nobody-here"))
    yield fake
    fake.close()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*words: str) -> Said:
        code = main(words)
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run
