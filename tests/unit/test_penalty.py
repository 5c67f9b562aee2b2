"""The late penalty's little language: what is taken, what is refused, what comes out."""

from __future__ import annotations

import contextlib
import re
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mongo.penalty import (
    DEFAULT_PENALTY,
    NESTING_MAX,
    PROBES,
    TEXT_CHARS_MAX,
    PenaltyError,
    compile_penalty,
)


@pytest.mark.parametrize(
    ("text", "gain", "overtime", "left"),
    [
        (DEFAULT_PENALTY, 100, 0, 0),
        ("score=score*(0.8**overtime)", 100, 1, 80),
        ("score=score*(0.7**overtime)", 50, 1, 35),
        ("score*(0.7**overtime)", 50, 1, 35),
        ("score = score - 10 * overtime", 100, 3, 70),
        ("score / 2", 5, 0, 2),
        ("score if overtime < 2 else score / 2", 100, 1, 100),
        ("score if overtime < 2 else score / 2", 100, 2, 50),
        ("if overtime>1: score=0", 100, 1, 100),
        ("if overtime>1: score=0", 100, 2, 0),
        ("if(overtime >= 1): score = score*0.5", 80, 1, 40),
        ("if overtime > 1 and score > 50: score = 50", 80, 2, 50),
        ("score * (overtime == 0)", 100, 0, 100),
        ("score * (overtime == 0)", 100, 1, 0),
        ("score == 100", 100, 0, 1),
        ("  score  =  score  ", 7, 3, 7),
        ("score * (1 if not overtime else 0.5)", 10, 4, 5),
        ("2 ** -overtime * score", 100, 2, 25),
    ],
)
def test_accepted_styles(text: str, gain: int, overtime: int, left: int) -> None:
    assert compile_penalty(text)(gain, overtime) == left


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not an arithmetic expression"),
        ("score =", "not an arithmetic expression"),
        ("score = score = 0", "not an arithmetic expression"),
        ("score = 0; score = 1", "not an arithmetic expression"),
        ("if overtime > 1: pass", "not an arithmetic expression"),
        ("import os", "not an arithmetic expression"),
        ("score\ud800", "not an arithmetic expression"),
        ("score\0", "not an arithmetic expression"),
        ("(" * 250 + "score" + ")" * 245, "not an arithmetic expression"),
        ("days * score", "may not name 'days'"),
        ("__builtins__", "may not name '__builtins__'"),
        ("abs(score)", "may not use Call"),
        ("().__class__", "may not use"),
        ("score.real", "may not use Attribute"),
        ("lambda: score", "may not use Lambda"),
        ("[score][0]", "may not use"),
        ("score[0]", "may not use Subscript"),
        ("(score := 5)", "may not use NamedExpr"),
        ("score // 2", "may not use FloorDiv"),
        ("score % 2", "may not use Mod"),
        ("score << 9", "may not use LShift"),
        ("~score", "may not use Invert"),
        ("f'{score}'", "may not use JoinedStr"),
        ("score in (1, 2)", "may not use"),
        ("'a' * score", "numbers only"),
        ("b'a'", "numbers only"),
        ("None", "numbers only"),
        ("...", "numbers only"),
        ("2j * score", "numbers only"),
        ("score / overtime", "ZeroDivisionError"),
        ("0 ** -overtime", "ZeroDivisionError"),
        ("0 ** -0.5", "ZeroDivisionError"),
        ("score / (overtime - 7)", "overtime=7"),
        ("(0 - score) ** 0.5", "does not give a number"),
        ("1e400", "so large a number"),
        ("1e400 - 1e400", "so large a number"),
        ("1e99999", "not hold the number"),
        ("1e" + "9" * 30, "not hold the number"),
        ("score * 1e308 * 10", "too large a number"),
        ("9" * 400, "so large a number"),
        ("score * 0.5 ** 1e13", "OverflowError"),
        ("score * 2 ** (overtime * 1e300)", "OverflowError"),
        ("*".join(["1e300"] * 9), "OverflowError"),
        ("2 ** 100000.5", "OverflowError"),
        ("9 ** 9 ** 9", "OverflowError"),
        ("9 ** 3000000 * 0 + score", "OverflowError"),
        ("score * (3999999 ** 3999999)", "OverflowError"),
        ("-" * (NESTING_MAX + 1) + "score", "nested"),
        ("+".join(["score"] * (NESTING_MAX + 1)), "nested"),
        ("score" + " " * TEXT_CHARS_MAX, "longer than"),
    ],
    ids=lambda value: ascii(value[:30]),
)
def test_refused_texts(text: str, why: str) -> None:
    with pytest.raises(PenaltyError, match=why):
        compile_penalty(text)


@pytest.mark.parametrize(
    ("text", "gain", "overtime", "left"),
    [
        # Each a whole number that floating point misses by a little, or by a lot.
        ("score*(0.7**overtime)", 100, 2, 49),
        ("score = score*0.57", 100, 1, 57),
        ("score = score*0.29", 100, 1, 29),
        ("score*(1-0.1*overtime)", 100, 3, 70),
        ("score*(1-0.1*overtime)", 10, 9, 1),
        ("score * 1.1 / 1.1", 59, 0, 59),
        ("score / 3 * 3", 7, 0, 7),
        ("score if 0.1 * overtime == 0.3 else 0", 100, 3, 100),
        ("score if 0.1 * overtime <= 0.7 else 0", 100, 7, 100),
        ("1 / 3 * score", 99, 0, 33),
        ("score * 4.35", 1, 0, 1),
        ("score * 0.000_1e4", 77, 0, 77),
        ("score * 1_0.0e-1", 77, 0, 77),
        ("score * .5 + 1.", 40, 0, 21),
        ("score * 0x10 / 16", 40, 0, 40),
        ("(score *\n  0.57)", 100, 0, 57),
        ("(0 * score + \r\n 0.29) * score", 100, 0, 29),
        ("\N{FULLWIDTH LATIN SMALL LETTER S}core * 0.57", 100, 0, 57),
        ("if overtime>0.3: score = score * 0.29", 100, 1, 29),
        # Cut once, at the end, and toward zero.
        ("score * 0.999", 1, 0, 0),
        ("score / 2 + score / 2", 5, 0, 5),
        ("score - 0.5", 1, 0, 0),
        ("0 - 0.5", 1, 0, 0),
    ],
)
def test_what_is_left_is_exact(text: str, gain: int, overtime: int, left: int) -> None:
    assert compile_penalty(text)(gain, overtime) == left


@pytest.mark.parametrize(
    ("text", "gain", "overtime", "left"),
    [
        ("score ** 0.5", 81, 0, 9),
        ("7 * score ** 0.5", 49, 0, 49),
        ("score ** (1/3) * 10", 64, 0, 40),
        ("score * (1 / 9) ** 0.5 * 3", 41, 0, 41),
        ("score * 0.49 ** (overtime / 2)", 100, 1, 70),
        ("score * 0.49 ** -0.5", 70, 1, 70),
        ("10 * score ** 0.5", 50, 0, 50),
        ("score ** 0.5", 50, 0, 7),
        ("score ** 0.5 * 1.42", 50, 0, 10),
        ("score ** 0.123456789", 100, 0, 1),
        ("0 ** 0.5 * score", 50, 0, 0),
    ],
)
def test_roots_are_exact_where_they_are_fractions(
    text: str, gain: int, overtime: int, left: int
) -> None:
    assert compile_penalty(text)(gain, overtime) == left


@pytest.mark.parametrize(
    ("text", "overtime", "left"),
    [
        ("score * 0.999 ** overtime", 3000, 4),
        ("score * 0.9999 ** overtime", 20_000, 13),
        ("score * (0.999 ** overtime) * (0.998 ** overtime)", 1000, 4),
        ("score * (1 - 0.7 ** overtime)", 700_000, 100),
        ("score * 1.001 ** -overtime", 1000, 36),
        ("score * (overtime > 0 and -1.01 ** overtime < 0)", 20_000, 100),
        ("score * (0 - 1) ** overtime", 700_000, 100),
        ("score * 1 ** (overtime ** 9)", 700_000, 100),
        ("score if (0 - 1.1) ** (2 * overtime + 1) < 0 else 0", 5_000, 100),
        ("score if (0 - 1.1) ** (2 * overtime) > 0 else 0", 5_000, 100),
        ("score * 0.5 ** (1e6 * overtime)", 3, 0),
        ("score * 1e-400", 3, 0),
        ("score * 1e-99999", 3, 0),
    ],
)
def test_decades_late_the_numbers_are_rounded_not_refused(
    text: str, overtime: int, left: int
) -> None:
    assert compile_penalty(text)(100, overtime) == left


def independent(text: str, gain: int, overtime: int) -> Fraction:
    """What Python's own fractions make of a text; decimals are read from their digits."""
    as_fractions = re.sub(r"\d+(\.\d+)?", lambda found: f"F('{found[0]}')", text)
    value = eval(as_fractions, {"F": Fraction, "score": Fraction(gain), "overtime": overtime})
    return Fraction(value)


SMALL = st.recursive(
    st.one_of(
        st.sampled_from(["score", "overtime"]),
        st.integers(0, 200).map(str),
        st.decimals(0, 2, places=2).map(str),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/<>"), inner).map(lambda p: f"({' '.join(p)})"),
        st.tuples(inner, st.sampled_from(["==", "!=", "<=", ">=", "and", "or"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        st.tuples(inner, st.sampled_from(["overtime", "2", "3"])).map(
            lambda p: f"({'**'.join(p)})"
        ),
        inner.map(lambda text: f"(-{text})"),
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
    ),
    max_leaves=6,
)


@given(SMALL, st.integers(0, 100), st.integers(0, 30))
def test_it_agrees_with_an_independent_exact_evaluation(
    text: str, gain: int, overtime: int
) -> None:
    try:
        penalty = compile_penalty(text)
    except PenaltyError as refused:
        assume("Overflow" not in str(refused) and "too large" not in str(refused))
        with pytest.raises(ZeroDivisionError):
            [independent(text, *probe) for probe in PROBES]
        return
    try:
        exact = independent(text, gain, overtime)
    except ZeroDivisionError:
        assert penalty(gain, overtime) == 0
        return
    assume(max(exact.numerator.bit_length(), exact.denominator.bit_length()) <= 1024)
    assert penalty(gain, overtime) == min(max(int(exact), 0), gain)


@pytest.mark.parametrize(
    ("text", "left"), [("score + 50", 100), ("0 - score", 0), ("score * 1e300", 100), ("0.999", 0)]
)
def test_what_is_left_is_cut_to_the_gain(text: str, left: int) -> None:
    assert compile_penalty(text)(100, 1) == left


@pytest.mark.parametrize(
    ("text", "overtime"), [("score / (overtime - 8)", 8), ("10 ** overtime", 1000)]
)
def test_what_fails_beyond_the_probes_forfeits_the_gain(text: str, overtime: int) -> None:
    assert compile_penalty(text)(100, overtime) == 0


OPERATORS = st.sampled_from(["+", "-", "*", "/", "**", "<", ">", "==", "and", "or"])
EXPRESSION = st.recursive(
    st.sampled_from(["score", "overtime", "0", "1", "0.5", "100", "3"]),
    lambda inner: st.one_of(
        st.tuples(inner, OPERATORS, inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda text: f"(-{text})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
    ),
    max_leaves=12,
)


@given(EXPRESSION, st.integers(0, 100), st.integers(0, 10_000))
def test_a_compiled_penalty_always_gives_a_whole_number_within_the_gain(
    text: str, gain: int, overtime: int
) -> None:
    try:
        penalty = compile_penalty(text)
    except PenaltyError:
        return
    left = penalty(gain, overtime)
    assert type(left) is int
    assert 0 <= left <= gain


@given(st.text(max_size=60))
def test_no_text_makes_it_fail_in_another_way(text: str) -> None:
    with contextlib.suppress(PenaltyError):
        compile_penalty(text)(100, 3)
