"""Amounts as people write them, to the integers that the engine counts in (CONTRACT, sections 2.1 and 7).

`cpu_milli` (cores → millicores), `memory_bytes` ("16Gi" → bytes), `share_milli` (devices → thousandths). Exact or refused:
a value between two whole units is never rounded. Every refusal is a `QuantityError` whose text is the rule that was broken.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

LARGEST = 2**53
"""Nothing above is accepted: up to here every JSON reader in the world agrees on integers."""

LONGEST = 64
"""Characters of a quantity written as text."""

SUFFIXES = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}

_TEXT = re.compile(r"([0-9]+)(?:\.([0-9]+))?(?:[eE]\+?([0-9]+))?([A-Za-z]*)")


class QuantityError(ValueError):
    """The value is no quantity; the text says which rule it breaks."""


def cpu_milli(value: object) -> int:
    """Cores (`4`, `0.5`, `"4"`, `"1500m"`) as millicores. Raises QuantityError."""
    if isinstance(value, str):
        return _cpu_text(value)
    return _thousandths(value, "finer than a millicore (0.001)")


def memory_bytes(value: object) -> int:
    """Bytes (`1073741824`, `"16Gi"`, `"1.5G"`, `"1e9"`) as an integer. Raises QuantityError."""
    if isinstance(value, str):
        return _memory_text(value)
    number = _number(value)
    if number != int(number):
        raise QuantityError("a fraction of a byte")
    return int(number)


def share_milli(value: object) -> int:
    """Devices (`2`, `0.5`, `2.5`) as thousandths of a device. Raises QuantityError."""
    return _thousandths(value, "finer than a thousandth of a device (0.001)")


def _thousandths(value: object, too_fine: str) -> int:
    number = _number(value)
    if isinstance(number, int):
        return number * 1000
    milli = round(number * 1000)
    # Division is rounded correctly, so this is equality of the decimal that was written with a whole number of thousandths.
    if milli / 1000 != number:
        raise QuantityError(too_fine)
    return milli


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(f"must be a number, not {type_name(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise QuantityError("must be finite, not NaN or infinity")
    if value < 0:
        raise QuantityError("must not be negative")
    if value > LARGEST:
        raise QuantityError("must be at most 2^53")
    return value


@lru_cache(maxsize=4096)
def _cpu_text(text: str) -> int:
    whole, fraction, exponent, suffix = _parts(text)
    if exponent or suffix not in ("", "m"):
        raise QuantityError(f'unknown suffix in "{_short(text)}"; cores are a number or millicores such as "1500m"')
    return _bounded(_exact(whole, fraction, 1 if suffix else 1000, "finer than a millicore (0.001)"), 1000)


@lru_cache(maxsize=4096)
def _memory_text(text: str) -> int:
    whole, fraction, exponent, suffix = _parts(text)
    if suffix not in SUFFIXES:
        raise QuantityError(f'unknown suffix "{_short(suffix)}"; known are Ki Mi Gi Ti Pi, k M G T P, or an exponent')
    if exponent and suffix:
        raise QuantityError("an exponent and a suffix exclude each other")
    if len(exponent) > 3:
        raise QuantityError("must be at most 2^53")
    factor = int("1" + "0" * int(exponent or 0)) * SUFFIXES[suffix]
    return _bounded(_exact(whole, fraction, factor, "a fraction of a byte"), 1)


def _parts(text: str) -> tuple[str, str, str, str]:
    """(whole digits, digits after the point, digits of the exponent, suffix), the last three possibly empty."""
    if not text:
        raise QuantityError("must not be empty")
    if len(text) > LONGEST:
        raise QuantityError(f"must be at most {LONGEST} characters")
    if any(character.isspace() for character in text):
        raise QuantityError("must not hold spaces")
    if text[0] == "-":
        raise QuantityError("must not be negative")
    if text[:2] in ("0x", "0X"):
        raise QuantityError("must not be hexadecimal")
    if text.lstrip("+").lower() in ("nan", "inf", "infinity"):
        raise QuantityError("must be finite, not NaN or infinity")
    found = _TEXT.fullmatch(text)
    if found is None:
        raise QuantityError(f'"{_short(text)}" is not a quantity')
    return found[1], found[2] or "", found[3] or "", found[4]


def _exact(whole: str, fraction: str, factor: int, too_fine: str) -> int:
    digits = fraction.rstrip("0")
    amount, rest = divmod(int(whole + digits) * factor, int("1" + "0" * len(digits)))
    if rest:
        raise QuantityError(too_fine)
    return amount


def _bounded(amount: int, unit: int) -> int:
    if amount > LARGEST * unit:
        raise QuantityError("must be at most 2^53")
    return amount


def _short(text: str) -> str:
    return text if len(text) <= 32 else text[:29] + "..."


def type_name(value: object) -> str:
    """What people who write JSON call the type of a value."""
    if value is None:
        return "null"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)
