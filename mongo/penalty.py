"""The late penalty's little language: arithmetic over `score` and `overtime`. Pure.

Guarantees: a text that `compile_penalty` accepted gives, for every gain and lateness, a whole
number between 0 and the gain. No name but `score` and `overtime`, no call, no attribute, no
subscript can be written; it is evaluated by simpleeval, never by `eval`, and in bounded time.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from simpleeval import DEFAULT_OPERATORS, SimpleEval

DEFAULT_PENALTY = "score = 0"
TEXT_CHARS_MAX = 500
NESTING_MAX = 64
"""Deeper texts would evaluate or not depending on how deep the caller's stack already is."""
PROBES = [(gain, overtime) for gain in (1, 50, 100) for overtime in (0, 1, 2, 7, 30)]

Penalty = Callable[[int, int], int]
"""(gain, whole days late) to what is left of the gain, 0..gain."""

_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Name, ast.Load,
    ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd, ast.And, ast.Or,
    ast.Not, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
)  # fmt: skip
_OPERATORS = {
    **DEFAULT_OPERATORS,
    # Whole numbers of millions of digits take minutes; floats overflow at once.
    ast.Pow: lambda base, exponent: float(base) ** exponent,
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
        PenaltyError: it does not parse, uses anything else, or gives no finite number for one
            of the probes.
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
        return int(min(max(left, 0), gain))

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
    if _nesting(tree) > NESTING_MAX:
        raise PenaltyError(f"is nested more than {NESTING_MAX} deep")
    return tree


def _nesting(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def _evaluate(tree: ast.Expression, gain: int, overtime: int) -> float:
    evaluator = SimpleEval(
        operators=_OPERATORS, names={"score": gain, "overtime": overtime}, functions={}
    )
    try:
        value: Any = evaluator.eval("penalty", previously_parsed=tree.body)
        number = float(value)
    except Exception as error:  # noqa: BLE001 - simpleeval raises whatever arithmetic raises
        raise PenaltyError(f"does not give a number ({type(error).__name__})") from None
    if not math.isfinite(number):
        raise PenaltyError("does not give a finite number")
    return number
