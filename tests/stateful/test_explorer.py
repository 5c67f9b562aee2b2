"""Every interleaving of the protocol's steps, searched: what to consult before changing a guard."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from dispatch import states
from tests.stateful.machine import Machine
from tests.stateful.world import CANCELS, GUARDS, World, at_rest, check_world

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


def explore(machine: Machine, *, aborts: int = 1, cancels: int = 0) -> Search:
    """Search breadth first from a submission just stored, until a violation or the end."""
    search = Search()
    start = World(aborts_left=aborts, cancels_left=cancels)
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


@pytest.fixture(scope="module")
def complete_search() -> Search:
    return explore(Machine())


def test_i1_to_i8_hold_in_every_interleaving(complete_search: Search) -> None:
    assert not complete_search.violation, str(complete_search)
    assert complete_search.worlds > 10_000


def test_i1_to_i8_hold_for_runners_that_send_no_token() -> None:
    search = explore(Machine(tokens=False), aborts=0)
    assert not search.violation, str(search)


@pytest.fixture(scope="module")
def search_with_a_cancel() -> Search:
    return explore(Machine(), aborts=0, cancels=1)


def test_i1_to_i8_hold_where_a_rejudge_is_taken_back(search_with_a_cancel: Search) -> None:
    assert not search_with_a_cancel.violation, str(search_with_a_cancel)


@pytest.mark.parametrize("guard", GUARDS)
def test_every_guard_is_needed(guard: str) -> None:
    machine = Machine(frozenset({guard}), tokens=guard != "rejudge_new_id")
    aborts = 2 if guard == "drain_refunds_bound" else 0 if GUARDS[guard] == "I8" else 1
    cancels = 1 if guard in CANCELS else 0
    search = explore(machine, aborts=0 if cancels else aborts, cancels=cancels)
    print(f"without {guard}: {search}")
    assert search.violation.startswith(GUARDS[guard]), f"without {guard}: {search}"


def test_the_model_takes_exactly_the_edges_of_the_table(
    complete_search: Search, search_with_a_cancel: Search
) -> None:
    listed = {
        (edge.event, source.value, edge.target.value)
        for edge in states.EDGES
        for source in edge.sources
    }
    assert complete_search.edges | search_with_a_cancel.edges == listed
