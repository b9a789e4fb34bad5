"""Where a configuration comes from: a TOML file, `--set a.b=c` on top, or the `config:` of a scenario.

Unknown keys are refused with the nearest known name, broken rules with what to change; all of them at once, as one ConfigError.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hetsched.config.rules import broken_rules
from hetsched.config.tree import Config, Section
from hetsched.errors import ConfigError
from hetsched.model.reader import nearest
from hetsched.quantity import QuantityError, memory_bytes

SIMULATED = {"health": {"quarantine": False, "auto_cordon": False}}
"""Defaults that differ in the simulator: only what the scenario says happens to nodes."""


def load(path: Path | None = None, sets: Iterable[str] = ()) -> Config:
    """The file's configuration (defaults where `path` is None) with `sets` ("batch.size=64") laid over it. Raises ConfigError."""
    raw = {} if path is None else _read(path)
    for assignment in sets:
        _assign(raw, assignment)
    return _check(raw, str(path) if path is not None else "configuration")


def from_mapping(raw: object, *, simulated: bool = True, sets: Iterable[str] = ()) -> Config:
    """The configuration in a scenario's `config:` with `sets` laid over it. Raises ConfigError."""
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        raise ConfigError("config: must be a mapping of sections")
    raw = copy.deepcopy(dict(raw))
    for assignment in sets:
        _assign(raw, assignment)
    return _check(_merged(SIMULATED, raw) if simulated else dict(raw), "config")


def to_mapping(config: Config) -> dict[str, Any]:
    """The whole tree with its values in effect, for `hetsched config show`."""
    out: dict[str, Any] = msgspec.to_builtins(config)
    return out


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _assign(raw: dict[str, Any], assignment: str) -> None:
    key, equals, text = assignment.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise ConfigError(f'--set {assignment}: must look like "batch.size=64"')
    section = raw
    for name in names[:-1]:
        inner = section.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {assignment}: {name} is a value, not a section")
        section = inner
    section[names[-1]] = _toml_value(text.strip())


def _toml_value(text: str) -> Any:
    """As TOML if it is (`3`, `true`, `["critical"]`), else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # also what Python says of a number of thousands of digits
        return text


def _merged(under: Mapping[str, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    out: dict[Any, Any] = dict(under)
    for key, value in over.items():
        inner = out.get(key)
        out[key] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return out


def _check(raw: dict[str, Any], source: str) -> Config:
    faults = list(_unknown_keys(raw, Config, ""))
    sized = _sizes(raw, faults)
    if not faults:
        try:
            config = msgspec.convert(sized, Config)
        except msgspec.ValidationError as error:
            faults.append(_in_our_words(str(error)))
        else:
            faults = list(broken_rules(config))
    if faults:
        raise ConfigError(f"{source}: " + "; ".join(faults))
    return config


def _unknown_keys(raw: Mapping[Any, Any], section: type[Section], path: str) -> Iterator[str]:
    members = {field.name: field.type for field in msgspec.structs.fields(section)}
    for key, value in raw.items():
        if key not in members:
            guess = nearest(str(key), members)
            yield f"unknown key {path}{key}" + (f", did you mean {path}{guess}?" if guess else "")
        elif isinstance(members[key], type) and issubclass(members[key], Section) and isinstance(value, Mapping):
            yield from _unknown_keys(value, members[key], f"{path}{key}.")


def _sizes(raw: Mapping[Any, Any], faults: list[str], path: str = "") -> dict[Any, Any]:
    """`*_bytes` written as text ("16Mi") become integers."""
    out: dict[Any, Any] = {}
    for key, value in raw.items():
        if isinstance(value, Mapping):
            out[key] = _sizes(value, faults, f"{path}{key}.")
        elif isinstance(key, str) and key.endswith("_bytes") and isinstance(value, str):
            try:
                out[key] = memory_bytes(value)
            except QuantityError as error:
                faults.append(f"{path}{key}: {error}")
        else:
            out[key] = value
    return out


def _in_our_words(message: str) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.batch.size`" as "batch.size: expected int, got str"."""
    text, _, place = message.partition(" - at `")
    key = place.rstrip("`").removeprefix("$.")
    text = text.replace("`", "")
    return f"{key}: {text[:1].lower()}{text[1:]}" if key else text
