"""Arithmetic on fractions whose size is bounded. Pure functions.

Guarantees: a result that fits in `BITS_MAX` bits above and below the line is exact. What needs more
is rounded to `DIGITS_KEPT` digits, what is as large as that is refused, and a root that is no
fraction is rounded likewise. The same numbers give the same result on every machine: no binary
floating point is used. Each operation takes well under ten milliseconds.
"""

from __future__ import annotations

from decimal import Context, Decimal, Overflow
from fractions import Fraction

BITS_MAX = 8192
DIGITS_KEPT = 40
EXPONENT_MAX = 10**12
"""The largest exponent of a power that is rounded: beyond it, too few digits would be right."""

_LARGEST = 2 ** (BITS_MAX - 1)
# Such a number with its digits, written with powers of ten, still fits.
_SMALLEST = Fraction(1, 2 ** (BITS_MAX - 256))
_LITERAL_DIGITS_MAX = 1000
_TEN_POWER_MAX = 9_999
"""Ten to this is beyond `_LARGEST`, so nothing is lost at the ends of the contexts below."""
_READING = Context(prec=_LITERAL_DIGITS_MAX, Emax=_TEN_POWER_MAX, Emin=-_TEN_POWER_MAX)
_WORKING = Context(prec=DIGITS_KEPT + 20, Emax=_TEN_POWER_MAX, Emin=-_TEN_POWER_MAX)
_KEEPING = Context(prec=DIGITS_KEPT, Emax=_TEN_POWER_MAX, Emin=-_TEN_POWER_MAX)


def literal(text: str) -> Fraction:
    """Return the number that a decimal literal says, such as 7/10 for `0.7`.

    Raises:
        OverflowError: it is too large.
        ArithmeticError: it is no decimal literal.
    """
    try:
        return bounded(Fraction(_READING.create_decimal(text.replace("_", ""))))
    except Overflow:
        raise OverflowError("the number is too large") from None


def bounded(value: Fraction) -> Fraction:
    """Return `value`, rounded if it does not fit.

    Raises:
        OverflowError: it is too large.
    """
    if max(value.numerator.bit_length(), value.denominator.bit_length()) <= BITS_MAX:
        return value
    if abs(value) >= _LARGEST:
        raise OverflowError("the number is too large")
    return Fraction(0) if abs(value) < _SMALLEST else Fraction(_decimal(value, _KEEPING))


def power(base: Fraction, exponent: Fraction) -> Fraction:
    """Return `base ** exponent`: exact where that is a fraction that fits.

    Raises:
        OverflowError: it is too large, or cannot be told for the size of the exponent.
        ZeroDivisionError: zero to a negative power.
        ValueError: the root of a negative number.
    """
    if exponent.denominator == 1:
        return _whole_power(base, exponent.numerator)
    if base < 0:
        raise ValueError("the root of a negative number")
    root = _root(base, exponent.denominator)
    return (
        _rounded_power(base, exponent) if root is None else _whole_power(root, exponent.numerator)
    )


def _whole_power(base: Fraction, exponent: int) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent)
    if bits <= 2 * BITS_MAX or base in (-1, 0, 1):
        return bounded(base**exponent)
    size = _rounded_power(abs(base), Fraction(exponent))
    return -size if base < 0 and exponent % 2 else size


def _rounded_power(base: Fraction, exponent: Fraction) -> Fraction:
    if abs(exponent) > EXPONENT_MAX:
        raise OverflowError("the exponent is too large")
    try:
        raised = _WORKING.power(_decimal(base, _WORKING), _decimal(exponent, _WORKING))
    except Overflow:
        raise OverflowError("the number is too large") from None
    return bounded(Fraction(_KEEPING.plus(raised)))


def _decimal(value: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _root(value: Fraction, degree: int) -> Fraction | None:
    """Return the root if it is a fraction. `value` is not negative."""
    above, below = _whole_root(value.numerator, degree), _whole_root(value.denominator, degree)
    return None if above is None or below is None else Fraction(above, below)


def _whole_root(number: int, degree: int) -> int | None:
    if number <= 1:
        return number
    if degree >= number.bit_length():
        return None  # between 1 and 2; the powers below would not end
    # Newton's method from above, in whole numbers.
    root = 1 << -(-number.bit_length() // degree)
    while True:
        nearer = ((degree - 1) * root + number // root ** (degree - 1)) // degree
        if nearer >= root:
            return root if root**degree == number else None
        root = nearer
