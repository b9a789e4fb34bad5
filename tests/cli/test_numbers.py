"""Numbers that are none, or that nobody can mean: no command ends with a traceback, and the daemon is never sent one."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hetsched.cli.parser import Parser, seconds, whole
from hetsched.cli.table import TABLE, Command
from hetsched.client import Client
from hetsched.errors import ConfigError, Problem
from tests.cli.conftest import Said
from tests.cli.fake_daemon import TOKEN, FakeDaemon

Call = Callable[..., Said]

NO_NUMBERS = ("nan", "inf", "-inf", "1e999", "9" * 400 + ".5")
TOO_MUCH = ("9" * 30, "9" * 5000)
STAYS = frozenset({"serve", "agent", "demo", "doctor", "top", "handover", "load"})  # they start or watch something


def command_of(name: str) -> tuple[Command, Parser]:
    command: Command = importlib.import_module(f"hetsched.cli.{TABLE[name].module}").COMMANDS[name]
    parser = Parser(name, "", command.usage)
    command.arguments(parser)
    return command, parser


def lines_of(name: str) -> Iterator[list[str]]:
    """The command with every option and word of it being each of these numbers."""
    _, parser = command_of(name)
    needed = ["t" for action in parser._actions if not action.option_strings and action.nargs in (None, "+")]
    needed += [
        f"{action.option_strings[0]}=1-1" for action in parser._actions if action.option_strings and action.required
    ]
    needed += ["--tpu=1"] if name in ("submit", "plan") else []
    for action in parser._actions:
        if (
            action.nargs == 0
            or action.type is Path
            or action.dest in ("help", "url", "token", "data_dir", "data", "file")
        ):
            continue
        before = {"resource": "gpu=", "limit": "cpu=", "guaranteed": "gpu=", "array": "0-"}.get(action.dest, "")
        for text in (*NO_NUMBERS, *TOO_MUCH):
            if action.option_strings:
                yield [*name.split(), *needed, f"{action.option_strings[0]}={before}{text}"]
            elif not text.startswith("-"):
                yield [*name.split(), *needed[1:], text]


@pytest.mark.parametrize("name", [name for name in TABLE if name not in STAYS])
def test_no_option_of_any_command_ends_in_a_traceback(daemon: FakeDaemon, call: Call, name: str) -> None:
    daemon.add("t", "succeeded")
    for words in lines_of(name):
        assert call(*words).code in range(7), words
    assert not [asked for asked in daemon.asked if "Infinity" in json.dumps(asked) or "NaN" in json.dumps(asked)]


def test_every_number_of_a_command_line_is_read_by_our_own_readers() -> None:
    for name in TABLE:
        command, parser = command_of(name)
        readers = {action.type for action in parser._actions if not command.raw} - {None, str, Path, seconds, whole}
        assert readers <= ({int, float} if name == "simulate" else set()), (
            name
        )  # the seed may be any, the tick is checked


@pytest.mark.parametrize("text", NO_NUMBERS + TOO_MUCH)
def test_those_readers_take_none(text: str) -> None:
    for read in (seconds, whole):
        with pytest.raises(ValueError):
            read(text)


IN_FILES = {
    "a.json": '[{"id": "a", "command": ["x"]}, {"resources": {"cpu": %s}}]',
    "b.ndjson": '{"id": "a", "command": ["x"]}\n{"resources": {"cpu": %s}}\n',
    "c.yaml": "- {id: a, command: [x]}\n- {resources: {cpu: %s}}\n",
    "d.yaml": "id: a\ncommand: [x]\n---\nresources: {cpu: %s}\n",
    "e.yaml": "graph: {operators: [{id: a, cost: %s}]}",
    "f.json": '{"graph": {"operators": [{"id": "a", "cost": %s}]}}',
    "g.json": '{"profiles": [{"type": "a", "model": "A100", "size": "1", "times": [1, %s]}]}',
    "h": "resources: {cpu: %s}",
}
PLACES = {
    **dict.fromkeys("acd", "/1/resources/cpu"),
    "b": "line 2: /resources/cpu",
    **dict.fromkeys("ef", "/graph/operators/0/cost"),
    "g": "/profiles/0/times/1",
    "h": "/resources/cpu",
}


SPELT = {
    True: ("1e999", "-1e999", "NaN", "Infinity", "9" * 5000),
    False: (".nan", "-.inf", "1.0e+999", "0x" + "f" * 9999, "9" * 5000),
}
CASES = [(name, number) for name in IN_FILES for number in SPELT[name.endswith("json")]]


@pytest.mark.parametrize("command", ["submit", "plan", "profile import"])
@pytest.mark.parametrize(("name", "number"), CASES)
def test_no_file_brings_one_to_the_daemon(
    daemon: FakeDaemon, call: Call, tmp_path: Path, command: str, name: str, number: str
) -> None:
    (tmp_path / name).write_text(IN_FILES[name] % number)
    said = call(*command.split(), str(tmp_path / name))
    assert said.code == 2 and daemon.asked == []
    assert len(number) > 99 or PLACES[name[0]] in said.err, said.err


@pytest.mark.parametrize("text", ["a: &a [*a]", "[" * 400, "{? {a: 1}: 2}", "a: !!binary aGFsbG8=", "a: !!set {b, c}"])
def test_nor_does_anything_else_that_json_does_not_have(
    daemon: FakeDaemon, call: Call, tmp_path: Path, text: str
) -> None:
    for name in ("a.yaml", "a.json"):
        (tmp_path / name).write_text(text)
        for command in ("submit", "plan", "profile import"):
            assert call(*command.split(), str(tmp_path / name)).code == 2
    assert daemon.asked == []


def test_dates_of_yaml_are_words(daemon: FakeDaemon, call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("{command: [x], labels: {day: 2026-12-01}, deadline: 2026-12-01T10:00:00Z}")
    assert call("submit", str(tmp_path / "a.yaml")).code == 0
    assert daemon.asked[0][2]["labels"] == {"day": "2026-12-01"}
    assert daemon.asked[0][2]["deadline"] == "2026-12-01T10:00:00+00:00"


def test_programs_are_told_so_too(daemon: FakeDaemon) -> None:
    client = Client(daemon.url, TOKEN)
    for number in (float("inf"), float("nan"), 10**5000, {1}, b"1"):
        for call in (client.submit, client.plan, client.submit_graph):
            with pytest.raises(Problem, match="cannot be written as JSON"):
                call({"duration": number})
    assert daemon.asked == []


@pytest.mark.parametrize("text", ["é", "a\nb", "٣"])
def test_what_no_header_can_hold_is_usage(daemon: FakeDaemon, call: Call, text: str) -> None:
    assert call("submit", "--idempotency-key", text, "--", "x").code == 2
    assert call("list", "--token", text).code == 2
    with pytest.raises(ConfigError):
        Client(daemon.url, text)
    assert daemon.asked == []
