"""Fractions of bounded size: what is exact, what is rounded, what is refused."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongo.exact import BITS_MAX, bounded, literal, power

HUGE = 2**BITS_MAX


def bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.7", "7/10"), ("1e3", "1000"), (".5", "1/2"), ("1_0.2_5", "41/4"), ("1e-5", "1/100000")],
)
def test_a_literal_is_what_its_text_says(text: str, value: str) -> None:
    assert literal(text) == Fraction(value)


@pytest.mark.parametrize("text", ["1e9999", "1e99999", "1e" + "9" * 30, "", "x"])
def test_literals_that_are_refused(text: str) -> None:
    with pytest.raises(ArithmeticError):
        literal(text)


def test_what_fits_stays_as_it_is_and_what_does_not_is_rounded() -> None:
    fits = Fraction(HUGE - 1, HUGE // 2)
    assert bounded(fits) == fits
    third = Fraction(HUGE, 3 * HUGE + 1)
    assert bounded(third) == Fraction(10**40 // 3, 10**40)
    assert bounded(Fraction(1, HUGE)) == 0
    with pytest.raises(OverflowError):
        bounded(Fraction(HUGE))


@given(st.fractions(), st.fractions())
def test_whatever_is_raised_stays_bounded(base: Fraction, exponent: Fraction) -> None:
    with contextlib.suppress(OverflowError, ZeroDivisionError, ValueError):
        assert bits(power(base, exponent)) <= BITS_MAX


@given(st.fractions(0, 50), st.integers(1, 9), st.integers(1, 9))
def test_a_root_that_is_a_fraction_is_exact(base: Fraction, over: int, under: int) -> None:
    assert power(base**under, Fraction(over, under)) == bounded(base**over)
