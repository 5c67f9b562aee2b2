"""The late penalty's little language: what is taken, what is refused, what comes out."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongo.penalty import (
    DEFAULT_PENALTY,
    NESTING_MAX,
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
        ("score / (overtime - 7)", "overtime=7"),
        ("(0 - score) ** 0.5", "does not give a number"),
        ("1e400", "finite"),
        ("1e400 - 1e400", "finite"),
        ("score * 1e308 * 10", "finite"),
        ("9" * 400, "OverflowError"),
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
