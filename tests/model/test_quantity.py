"""Amounts are exact or refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.quantity import LARGEST, QuantityError, cpu_milli, memory_bytes, share_milli


@pytest.mark.parametrize(
    ("written", "milli"),
    [
        (4, 4000),
        (0, 0),
        (0.5, 500),
        (2.5, 2500),
        (0.001, 1),
        ("4", 4000),
        ("1500m", 1500),
        ("0.25", 250),
        ("1.50", 1500),
    ],
)
def test_cores_become_millicores(written: object, milli: int) -> None:
    assert cpu_milli(written) == milli


@pytest.mark.parametrize(
    ("written", "count"),
    [
        (1024, 1024),
        (1024.0, 1024),
        ("16Gi", 16 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("4k", 4000),
        ("2M", 2_000_000),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("0.5Ki", 512),
        ("1P", 10**15),
        ("8Pi", LARGEST),
        (LARGEST, LARGEST),
    ],
)
def test_memory_becomes_bytes(written: object, count: int) -> None:
    assert memory_bytes(written) == count


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("", "empty"),
        (" 1Gi", "spaces"),
        ("1 Gi", "spaces"),
        ("-1", "negative"),
        (-1, "negative"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        ("NaN", "finite"),
        ("Infinity", "finite"),
        ("0x10", "hexadecimal"),
        (LARGEST + 1, "2^53"),
        ("9Pi", "2^53"),
        ("1e400", "2^53"),
        ("2E6024865272343", "2^53"),
        ("16gib", "suffix"),
        ("1K", "suffix"),
        ("1Ei", "suffix"),
        ("1e3Gi", "exclude"),
        ("+1", "not a quantity"),
        (".5Gi", "not a quantity"),
        ("1e-3", "not a quantity"),
        ("\u0661", "not a quantity"),
        (0.5, "fraction"),
        ("0.5", "fraction"),
        ("9" * 65, "64 characters"),
        (True, "number"),
        (None, "null"),
        ([1], "list"),
        ({}, "object"),
    ],
)
def test_what_is_no_memory_is_refused_with_its_rule(written: object, rule: str) -> None:
    with pytest.raises(QuantityError, match=rule.replace("^", r"\^")):
        memory_bytes(written)


@pytest.mark.parametrize("written", ["0.5m", "1e3", "1Gi", "", "NaN", -1, 0.0001, True, None, [1], 1e300, "1,5"])
def test_what_is_no_number_of_cores_is_refused(written: object) -> None:
    with pytest.raises(QuantityError):
        cpu_milli(written)


@pytest.mark.parametrize("written", [0.3333, "1", -0.5, True, None, float("inf"), 2**60])
def test_what_is_no_share_of_devices_is_refused(written: object) -> None:
    with pytest.raises(QuantityError):
        share_milli(written)


@given(st.integers(0, 10**12))
def test_every_thousandth_written_as_a_decimal_is_kept_exactly(milli: int) -> None:
    assert share_milli(milli / 1000) == milli


@given(st.floats(0, 1e9))
def test_a_float_is_kept_exactly_or_refused(cores: float) -> None:
    try:
        milli = cpu_milli(cores)
    except QuantityError:
        assert (Fraction(repr(cores)) * 1000).denominator != 1
    else:
        assert Fraction(repr(cores)) * 1000 == milli


@given(st.text(max_size=70))
def test_no_text_makes_anything_but_an_amount_or_a_refusal(text: str) -> None:
    for parse in (cpu_milli, memory_bytes):
        try:
            assert 0 <= parse(text) <= LARGEST * 1000
        except QuantityError as error:
            assert str(error)
