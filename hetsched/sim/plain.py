"""Plain values of scenario files: each reader says where the value stands and what it must be."""

from __future__ import annotations

import datetime
from typing import Any, NoReturn

from hetsched.errors import ScenarioError
from hetsched.model.read_time import TimeError, parse_rfc3339
from hetsched.model.reader import LONGEST_SECONDS, unknown

LARGEST_SEED = 2**63 - 1


class ScenarioRefused(ScenarioError):
    """The file can be read and is refused whole; the CLI exits with 4."""


def refuse(where: str, rule: str) -> NoReturn:
    """Refuse the file because of what stands at `where`."""
    raise ScenarioRefused(f"{where}: {rule}")


def list_of(raw: dict[str, Any], key: str) -> list[Any]:
    """The list under a key; empty where the key is absent."""
    value = raw.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        refuse(key, "must be a list")
    return value


def members(raw: object, where: str, known: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, Any]:
    """A mapping with these keys, the `needed` ones among them."""
    if not isinstance(raw, dict):
        refuse(where, f"must be a mapping with {', '.join(needed)}")
    for key in raw:
        if key not in known:
            refuse(where, unknown(key, known))
    for key in needed:
        if key not in raw:
            refuse(where, f"needs {key}")
    return raw


def text_of(value: object, where: str) -> str:
    """A word or a sentence."""
    if not isinstance(value, str) or not 0 < len(value) <= 256:
        refuse(where, "must be text of 1 to 256 characters")
    return value


def time_ns(value: object, where: str) -> int:
    """Seconds from t = 0, as nanoseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_SECONDS:
        refuse(where, "must be seconds from t = 0, not negative")
    return round(value * 1e9)


def seed_of(value: object) -> int:
    """A seed."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_SEED:
        refuse("seed", f"must be a whole number from 0 to {LARGEST_SEED}")
    return value


def moment_ns(value: object) -> int:
    """The moment that is t = 0, nanoseconds since 1970; absent = 1970."""
    if value is None:
        return 0
    if isinstance(value, datetime.datetime):
        value = value.isoformat() if value.tzinfo else value.isoformat() + "Z"
    try:
        return parse_rfc3339(text_of(value, "start"))
    except TimeError as error:
        refuse("start", str(error))


def as_words(raw: object) -> object:
    """YAML reads `rack: 1` as a number; people mean the word."""
    if not isinstance(raw, dict):
        return raw
    out = dict(raw)
    for key in ("labels", "node_selector"):
        if isinstance(out.get(key), dict):
            out[key] = {_word(label): _words(value) for label, value in out[key].items()}
    for key in ("taints", "tolerations"):
        if isinstance(out.get(key), list):
            out[key] = [_with_word(entry) for entry in out[key]]
    if isinstance(out.get("template"), dict):
        out["template"] = as_words(out["template"])
    if isinstance(out.get("tasks"), list):
        out["tasks"] = [as_words(entry) for entry in out["tasks"]]
    return out


def _with_word(raw: object) -> object:
    return {**raw, "value": _word(raw["value"])} if isinstance(raw, dict) and "value" in raw else raw


def _words(value: object) -> object:
    return [_word(entry) for entry in value] if isinstance(value, list) else _word(value)


def _word(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | datetime.date) else value
