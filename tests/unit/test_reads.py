"""Where the newest state may be read is listed here, each place with its reason.

Everything else reads what a majority has: see `dispatch.concerns`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("dispatch", "mongo", "api", "console", "commands")

NEWEST = {
    "dispatch/concerns.py:": "where it gets its name",
    "dispatch/store.py:JobStore.__init__": "where it gets its name",
    "dispatch/store.py:JobStore.pending": "the line: a claim's write guards the very job",
    "dispatch/store.py:JobStore.orphans": "as above",
    "dispatch/store.py:JobStore.pause_over": "somebody who waits looks once more",
    "dispatch/books.py:_samples": "points of a chart",
    "dispatch/glance.py:glance": "as above",
    "dispatch/runner.py:RunnerStore.__init__": "who a runner is, and what was noted of it, decides "
    "about no lease and no result",
    "dispatch/check_store.py:CheckStore.__init__": "records of checks are books for people",
    "mongo/engine.py:newest": "where it gets its name",
    "mongo/storage.py:_newest": "a blob never changes, and whoever reads one was referred to it",
    "mongo/storage.py:_files": "as above",
    "mongo/storage.py:_read_small": "as above",
    "mongo/submission.py:read_code": "a program never changes, and its lease has been looked at",
    "mongo/problem.py:open_testdata": "the hash says what is in it, and its lease was looked at",
    "mongo/user.py:principal": "a key that was made a moment ago opens, one that was removed does "
    "not",
    "mongo/console_session.py:find": "as with keys",
    "mongo/console_session.py:_in_force": "as with keys",
}


def test_the_newest_state_is_read_only_where_it_is_listed() -> None:
    found = {f"{path.relative_to(ROOT)}:{place}" for path in _modules() for place in _places(path)}
    assert found == set(NEWEST)


def test_a_read_concern_is_made_nowhere_else() -> None:
    makers = {
        str(path.relative_to(ROOT))
        for path in _modules()
        if any(
            isinstance(node, ast.Call) and _name(node.func) == "ReadConcern"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert makers == {"dispatch/concerns.py", "mongo/engine.py", "mongo/storage.py"}


def _modules() -> Iterator[Path]:
    yield from ROOT.glob("*.py")
    for package in PRODUCT:
        yield from (ROOT / package).rglob("*.py")


def _places(path: Path) -> Iterator[str]:
    """Yield the functions of a module in which the newest state is asked for."""

    def walk(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from walk(child, (*inside, child.name))
                continue
            if _asks(child):
                yield ".".join(inside)
            yield from walk(child, inside)

    return walk(ast.parse(path.read_text()), ())


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        level = node.args[0] if node.args else None
        made = _name(node.func) == "ReadConcern"
        majority = isinstance(level, ast.Constant) and level.value in ("majority", "linearizable")
        return (made and not majority) or _name(node.func) in ("newest", "_newest")
    if isinstance(node, ast.Attribute):
        return node.attr == "newest"
    return isinstance(node, ast.Name) and node.id == "LOCAL"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
