"""The late penalty's little language: arithmetic over `score` and `overtime`. Pure.

Guarantees: a text that `compile_penalty` accepted gives, for every gain and lateness, a whole
number between 0 and the gain. No name but `score` and `overtime`, no call, no attribute, no
subscript can be written; it is evaluated by simpleeval, never by `eval`, in bounded time, and in
fractions: `0.7` is 7/10, and only the end result is cut to a whole number. (`mongo.exact` says how
large a number may grow, and what becomes of a root.)
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from simpleeval import SimpleEval

from mongo import exact

DEFAULT_PENALTY = "score = 0"
TEXT_CHARS_MAX = 500
NESTING_MAX = 64
"""Deeper texts would evaluate or not depending on how deep the caller's stack already is."""
NUMBER_MAX = 2**1024
"""What a text writes or gives stays below it, as it had to when floating point was used."""
PROBES = [(gain, overtime) for gain in (1, 50, 100) for overtime in (0, 1, 2, 7, 30)]

Penalty = Callable[[int, int], int]
"""(gain, whole days late) to what is left of the gain, 0..gain."""

_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Name, ast.Load,
    ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd, ast.And, ast.Or,
    ast.Not, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
)  # fmt: skip


def _exactly(operation: Callable[..., Fraction]) -> Callable[..., Fraction]:
    """Do it on fractions: what a comparison gives counts as 0 or 1."""
    return lambda *operands: exact.bounded(operation(*map(Fraction, operands)))


_OPERATORS = {
    ast.Add: _exactly(operator.add),
    ast.Sub: _exactly(operator.sub),
    ast.Mult: _exactly(operator.mul),
    ast.Div: _exactly(operator.truediv),
    ast.Pow: _exactly(exact.power),
    ast.USub: _exactly(operator.neg),
    ast.UAdd: _exactly(operator.pos),
    ast.Not: operator.not_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_NAMES = frozenset({"score", "overtime"})
_ASSIGNMENT = re.compile(r"score\s*=(?!=)\s*")
_ONE_LINE_IF = re.compile(r"if\b(?P<test>[^:]+):\s*score\s*=(?!=)\s*(?P<value>.+)", re.DOTALL)


class PenaltyError(ValueError):
    """The text is not a penalty; the message says why."""


@lru_cache(maxsize=1024)
def compile_penalty(text: str) -> Penalty:
    """Return the penalty that `text` describes.

    Accepted are an expression over `score` (the gain) and `overtime` (whole days late), with or
    without a leading `score =`, and the one-line form `if CONDITION: score = EXPRESSION`, which
    leaves the gain as it is where the condition does not hold.

    Raises:
        PenaltyError: it does not parse, uses anything else, or gives no number below `NUMBER_MAX`
            for one of the probes.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise PenaltyError(f"is longer than {TEXT_CHARS_MAX} characters")
    tree = _parse(_expression(text.strip()))
    for gain, overtime in PROBES:
        try:
            _evaluate(tree, gain, overtime)
        except PenaltyError as error:
            raise PenaltyError(f"{error} for score={gain}, overtime={overtime}") from None

    def penalty(gain: int, overtime: int) -> int:
        try:
            left = _evaluate(tree, gain, overtime)
        except PenaltyError:
            # Only beyond the probes. A landing must not fail over it; the default forfeits too.
            return 0
        return min(max(int(left), 0), gain)

    return penalty


def _expression(text: str) -> str:
    conditional = _ONE_LINE_IF.fullmatch(text)
    if conditional:
        return f"({conditional['value'].strip()}) if ({conditional['test'].strip()}) else score"
    return _ASSIGNMENT.sub("", text, count=1) if _ASSIGNMENT.match(text) else text


def _parse(expression: str) -> ast.Expression:
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise PenaltyError("is not an arithmetic expression") from None
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise PenaltyError(f"may not use {type(node).__name__}")
        if isinstance(node, ast.Name) and node.id not in _NAMES:
            raise PenaltyError(f"may not name {node.id!r}, only score and overtime")
        if isinstance(node, ast.Constant) and type(node.value) not in (int, float, bool):
            raise PenaltyError("may hold numbers only")
        if isinstance(node, ast.Constant):
            node.value = _number(node, expression)  # type: ignore[assignment]
    if _nesting(tree) > NESTING_MAX:
        raise PenaltyError(f"is nested more than {NESTING_MAX} deep")
    return tree


def _number(constant: ast.Constant, expression: str) -> Fraction:
    """Return a constant as its text says it: what Python has made of it is the nearest float."""
    text, value = ast.get_source_segment(expression, constant) or "", constant.value
    try:
        number = Fraction(value) if isinstance(value, int) else exact.literal(text)
    except ArithmeticError:
        raise PenaltyError(f"may not hold the number {text[:20]!a}") from None
    if abs(number) >= NUMBER_MAX:
        raise PenaltyError(f"may not hold so large a number as {text[:20]!a}")
    return number


def _nesting(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def _evaluate(tree: ast.Expression, gain: int, overtime: int) -> Fraction:
    names = {"score": Fraction(gain), "overtime": Fraction(overtime)}
    evaluator = SimpleEval(operators=_OPERATORS, names=names, functions={})
    try:
        value: Any = evaluator.eval("penalty", previously_parsed=tree.body)
        number = Fraction(value)
    except Exception as error:  # noqa: BLE001 - simpleeval raises whatever arithmetic raises
        raise PenaltyError(f"does not give a number ({type(error).__name__})") from None
    if abs(number) >= NUMBER_MAX:
        raise PenaltyError("gives too large a number")
    return number
