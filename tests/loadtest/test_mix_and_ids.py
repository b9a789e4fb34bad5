"""Mixes render what the API accepts; ids lead back to the row they came from."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hetsched.model import parse_submission
from hetsched.model.ids import Ids
from loadtest.mix import MIXES, MixError, read_mix
from loadtest.options import parse
from loadtest.rows import identity, row_of, rows_in


@pytest.mark.parametrize("name", sorted(path.stem for path in MIXES.glob("*.toml")))
def test_every_class_of_every_mix_is_a_legal_task(name: str) -> None:
    mix = read_mix(name)
    for number in range(len(mix.classes)):
        for body in (
            mix.task(number, b"a.1.2"),
            mix.bulk([(number, b"a"), (number, b"b")]),
            mix.array(number, b"a", 3),
        ):
            submission = parse_submission(json.loads(body))
            assert all(not hasattr(item, "problem") for item in submission.items), submission


@pytest.mark.parametrize("name", ["mixed", "openb"])
def test_columns_say_what_the_list_would(name: str) -> None:
    mix = read_mix(name)
    kinds = np.array([0, len(mix.classes) - 1, 2, 0], dtype=np.uint8)
    body = msgspec.msgpack.decode(mix.columns(kinds, b"a\nb\nc\nd"))
    which = np.frombuffer(body["which"], "<u2").tolist()
    listed = json.loads(
        mix.bulk([(kind, identity) for kind, identity in zip(kinds.tolist(), (b"a", b"b", b"c", b"d"), strict=True)])
    )
    told = [
        {"id": ident.decode(), **body["templates"][at]}
        for ident, at in zip(body["ids"].split(b"\n"), which, strict=True)
    ]
    assert told == listed


def test_durations_are_spread_evenly_over_their_class(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        "[[class]]\nname = 'a'\nweight = 2\ndurations = [1, 2, 3, 4]\ntask = {resources = {cpu = 2}}\n[[class]]\ntask = {duration = 1}"
    )
    mix = read_mix(str(path))
    assert [(entry.task["duration"], entry.weight) for entry in mix.classes] == [
        (1, 0.5),
        (2, 0.5),
        (3, 0.5),
        (4, 0.5),
        (1, 1.0),
    ]
    assert mix.names() == {"a": [0, 1, 2, 3], "class-1": [4]}
    assert mix.demand()["cpu"] == pytest.approx(2 * 2.5 * 2 / 3)


def test_classes_are_drawn_by_weight() -> None:
    mix = read_mix("mixed")
    drawn = np.bincount(mix.draw(200_000, np.random.default_rng(1)), minlength=len(mix.classes))
    weights = np.array([entry.weight for entry in mix.classes])
    assert np.abs(drawn / 200_000 - weights / weights.sum()).max() < 0.005


def test_ids_lead_back_to_their_rows() -> None:
    assert row_of(identity("loadab", 3, 41).decode(), "loadab") == (3, 41)
    assert row_of(identity("loadab", 3, 41).decode() + "-7", "loadab") == (3, 48)  # a member of an array job
    assert row_of("somebody-elses", "loadab") is None


def test_many_ids_lead_back_to_their_rows_at_once() -> None:
    ids = [
        "loadab.0.5",
        "loadab.1.100-7",
        "other-3",
        "loadab.0.6",
        "loadab.x.7",
        "loadab",
        "loadab.1.100-8",
        "loadab.2.1-a",
    ]
    found = {
        ids[at]: (generator, row)
        for generator, where, rows in rows_in(Ids.of(ids), "loadab")
        for at, row in zip(np.arange(len(ids))[where].tolist(), rows.tolist(), strict=True)
    }
    assert found == {
        "loadab.0.5": (0, 5),
        "loadab.0.6": (0, 6),
        "loadab.1.100-7": (1, 107),
        "loadab.1.100-8": (1, 108),
    }
    ((generator, _, rows),) = rows_in(Ids.of([f"loadab.1.20-{at}" for at in range(3)]), "loadab")
    assert (generator, rows.tolist()) == (1, [20, 21, 22])
    assert not list(rows_in(Ids.of(["a-1", "b-2"]), "loadab"))


def test_kinds_tell_which_classes_ask_for_what() -> None:
    kinds = {entry.name: entry.kinds for entry in read_mix("mixed").classes}
    assert kinds["tpu-one"] == {"tpu"}
    assert kinds["cpu-small"] == frozenset()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected tables"),
        ("class = []", "1 to 255"),
        ("[[class]]\nwait = 1", "unknown key 'wait'"),
        ("[[class]]\ntask = {resources = {cpu = 1}}", "nothing ends it"),
        ("[[class]]\ndurations = [1]\ntask = {duration = 1}", "nothing ends it"),
        ("[[class]]\ndurations = [1, 0]\ntask = {}", "1 to 16 numbers above 0"),
        ("[[class]]\ndurations = [1]\ntask = {command = ['true']}", "without `command`"),
        (
            "[[class]]\ntask = {command = ['true']}\n[[class]]\ntask = {duration = 1}",
            "all tasks have a `command` or none",
        ),
        ("[[class]]\ntask = {id = 'x', duration = 1}", "without `id`"),
        ("[[class]]\nweight = 0\ntask = {duration = 1}", "above 0"),
        *(
            (text % number, "own.toml: ")
            for text in ("[[class]]\ntask = {duration = %s}", "[[class]]\nweight = %s\ntask = {duration = 1}")
            for number in ("nan", "inf", "1e999", "9" * 5000, "2026-12-01")
        ),
    ],
)
def test_a_mix_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(MixError, match=complaint):
        read_mix(str(path))


def test_an_unknown_mix_names_the_known_ones() -> None:
    with pytest.raises(MixError, match="cpu, critical, llm, mixed"):
        read_mix("absent")


@pytest.mark.parametrize(
    "argv",
    [
        ["--rps", "0"],
        ["--duration", "1e9"],
        ["--rps", "1e6", "--duration", "3000"],
        ["--batch", "0"],
        ["--nice", "-1"],
        ["--url", "http://127.0.0.1:1", "--store", "memory:"],
        ["--mode", "burst"],
        ["--machines", "2"],
        ["--machines", "2", "--store", "redis://127.0.0.1"],
        ["--join"],
        ["--join", "--store", "redis://127.0.0.1", "--machines", "2"],
        ["--search"],
        ["--mode", "process", "--url", "http://127.0.0.1:1"],
    ],
)
def test_a_run_is_bounded(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(argv)
    assert stopped.value.code == 2
