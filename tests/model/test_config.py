"""The configuration is a closed tree: defaults in one place, every key in the example, every mistake named."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hetsched.config import Config, from_mapping, load, to_mapping
from hetsched.errors import ConfigError


def keys(raw: dict[str, Any], path: str = "") -> set[str]:
    """Dotted names of all leaves; an empty table (labels) is a leaf."""
    out: set[str] = set()
    for key, value in raw.items():
        out |= keys(value, f"{path}{key}.") if isinstance(value, dict) and value else {path + key}
    return out


def test_the_example_shows_every_key_with_its_default(root: Path) -> None:
    example = root / "configs/hetsched.toml"
    assert keys(tomllib.loads(example.read_text())) == keys(to_mapping(Config()))
    assert load(example) == Config()


def test_every_key_of_the_example_has_its_comment(root: Path) -> None:
    lines = (root / "configs/hetsched.toml").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if "=" in line and not line.startswith("#"):
            assert "#" in line or before.startswith("#"), line


def test_sets_are_laid_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "h.toml"
    path.write_text("[batch]\nsize = 4\n[limits]\nbody_bytes = '1Mi'\n")
    config = load(path, ["batch.max_wait=0.5", "lanes.immediate=[]", "policy.preset=pack"])
    assert (config.batch.size, config.batch.max_wait, config.limits.body_bytes) == (4, 0.5, 2**20)
    assert (config.lanes.immediate, config.policy.preset) == ((), "pack")


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("batch.siez=1", "did you mean batch.size"),
        ("bacth.size=1", "did you mean batch"),
        ("batch.size=many", "batch.size: expected int"),
        ("batch.size=0", "batch.size is 0"),
        ("batch.max_wait=nan", "batch.max_wait"),
        ("batch=3", "batch"),
        ("order=random", "order is"),
        ("policy.preset=best", "policy.preset"),
        ("lanes.immediate=['urgent']", "lanes.immediate"),
        ("agent.heartbeat=14", "agent.lease"),
        ("overcommit.cpu=0.5", "overcommit.cpu"),
        ("limits.body_bytes=1Zi", "limits.body_bytes: unknown suffix"),
        ("defaults.cpu=-1", "defaults.cpu"),
        ("server.tls_cert=a.pem", "tls_key"),
        ("batch.size", "must look like"),
        ("order.x=1", "order"),
    ],
)
def test_a_mistake_is_named(assignment: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(None, [assignment])


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("[batch\n")
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "bad.toml")


def test_a_simulation_leaves_nodes_alone_unless_told() -> None:
    assert not from_mapping(None).health.auto_cordon
    assert from_mapping({"health": {"auto_cordon": True}}).health.auto_cordon
    assert Config().health.auto_cordon


@pytest.mark.parametrize(
    "raw", [3, [], "x", {"batch": 3}, {3: 4}, {"batch": {"size": True}}, {"agent": {"labels": [1]}}]
)
def test_a_scenario_s_configuration_is_checked_too(raw: object) -> None:
    with pytest.raises(ConfigError):
        from_mapping(raw)


def test_show_prints_plain_values() -> None:
    assert msgspec.json.decode(msgspec.json.encode(to_mapping(Config())))["batch"] == {
        "max_wait": 0.05,
        "min_wait": 0.002,
        "latency": 0.02,
        "size": 256,
    }


def leaves(section: msgspec.Struct, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key and its default; of a map, one entry."""
    for field in msgspec.structs.fields(type(section)):
        value = getattr(section, field.name)
        if isinstance(value, msgspec.Struct):
            yield from leaves(value, f"{path}{field.name}.")
        else:
            yield path + field.name + (".any" if isinstance(value, dict) else ""), value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "1e300", "9" * 30, "9" * 5000])
def test_no_key_takes_a_number_that_nobody_can_mean(text: str, tmp_path: Path) -> None:
    for key, default in leaves(Config()):
        if isinstance(default, str | tuple) or key in ("agent.labels.any", "cells.queues.any"):
            continue  # a word may be spelt like that
        with pytest.raises(ConfigError, match=key.partition(".any")[0].rpartition(".")[2]):
            load(None, [f"{key}={text}"])
    (tmp_path / "h.toml").write_text(f"[batch]\nmax_wait = {text}\n")
    with pytest.raises(ConfigError):
        load(tmp_path / "h.toml")
