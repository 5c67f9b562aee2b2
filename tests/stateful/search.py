"""A search of every interleaving, for the first violation or to the end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tests.stateful.machine import Machine
from tests.stateful.world import World, at_rest, check_world

WORLDS_MAX = 1_000_000


@dataclass
class Search:
    """What a search found. `trace` leads to the first violation, by a shortest way."""

    worlds: int = 0
    violation: str = ""
    trace: list[str] = field(default_factory=list)
    edges: set[tuple[str, str, str]] = field(default_factory=set)

    def __str__(self) -> str:
        """Return the violation and the way to it, one step a line."""
        steps = (f"  {number}. {step}" for number, step in enumerate(self.trace, 1))
        return "\n".join([f"{self.violation} ({self.worlds} worlds)", *steps])


def explore(machine: Machine, *, aborts: int = 1, cancels: int = 0, **more: Any) -> Search:
    """Search breadth first from a submission just stored, until a violation or the end.

    `more`: further fields of the first world.
    """
    search = Search()
    start = World(aborts_left=aborts, cancels_left=cancels)._replace(**more)
    number = {start: 0}
    came_from: list[tuple[int, str]] = [(0, "")]
    fair_into: list[list[int]] = [[]]
    resting: list[int] = []
    todo = deque([start])
    while todo:
        world = todo.popleft()
        here = number[world]
        if at_rest(world):
            resting.append(here)
        for move in machine.moves(world):
            after = machine.compact(move.world)
            there = number.get(after)
            if there is None:
                there = number[after] = len(number)
                came_from.append((here, move.name))
                fair_into.append([])
                todo.append(after)
                broken = move.broken or check_world(move.world)
            else:
                broken = move.broken
            if broken:
                search.violation = broken
                search.trace = [*_way(came_from, here), move.name]
                search.worlds = len(number)
                return search
            if move.edge:
                search.edges.add((move.edge, world.state, after.state))
            if move.fair:
                fair_into[there].append(here)
        if len(number) > WORLDS_MAX:
            raise RuntimeError("the model has become too large to search")
    search.worlds = len(number)
    _check_nothing_strands(search, came_from, fair_into, resting)
    return search


def _way(came_from: list[tuple[int, str]], here: int) -> list[str]:
    way: list[str] = []
    while here:
        here, name = came_from[here]
        way.append(name)
    return way[::-1]


def _check_nothing_strands(
    search: Search,
    came_from: list[tuple[int, str]],
    fair_into: list[list[int]],
    resting: list[int],
) -> None:
    """I8: from every world, runner B, time and the sweep alone can bring it to rest."""
    saved = set(resting)
    todo = deque(resting)
    while todo:
        for before in fair_into[todo.popleft()]:
            if before not in saved:
                saved.add(before)
                todo.append(before)
    stranded = next((here for here in range(len(came_from)) if here not in saved), None)
    if stranded is not None:
        search.violation = "I8 no way to a verdict without a human"
        search.trace = _way(came_from, stranded)
