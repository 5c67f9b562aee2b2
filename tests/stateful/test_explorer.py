"""Every interleaving of the protocol's steps, searched: what to consult before changing a guard."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dispatch import states
from tests.stateful.guards import AFTER_THE_FACT, CANCELS, GUARDS, READER_OF, UNOWNED
from tests.stateful.machine import Machine
from tests.stateful.repairing import PLANTS
from tests.stateful.search import Search, explore

LONE_LANDINGS = 1
"""Where an older version left something: what races with a repair is enough to search."""
TELLING = (
    "marks",
    "restores",
    "missing",
    "cancels",
    "retention",
    "recomputes",
    "repairs",
)
"""Readers that may act late on what was true. The others' readings are right or wrong at once."""


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


@pytest.mark.parametrize("reader", TELLING)
def test_i1_to_i8_hold_through_a_failover(reader: str) -> None:
    search = explore(Machine(reader=reader), **of_reader(reader))
    assert not search.violation, str(search)


@cache
def search_with_a_plant(plant: str) -> Search:
    return explore(Machine(landings_max=LONE_LANDINGS), aborts=0, plant=plant)


@pytest.mark.parametrize("plant", PLANTS)
def test_i8_what_an_older_version_left_comes_to_rest(plant: str) -> None:
    search = search_with_a_plant(plant)
    assert not search.violation, str(search)
    assert any(event == "repair" for event, _, _ in search.edges)


@pytest.mark.parametrize("plant", ["a mark", "a result", "no verdict", "another job"])
def test_i8_what_was_left_comes_to_rest_where_a_rejudge_is_taken_back(plant: str) -> None:
    search = explore(Machine(landings_max=LONE_LANDINGS), aborts=0, cancels=1, plant=plant)
    assert not search.violation, str(search)


def test_i8_a_job_whose_submission_is_gone_comes_to_rest_without_a_repair() -> None:
    left_by = frozenset({"missing_read_by_majority"})
    machine = Machine(left_by, reader="missing", landings_max=LONE_LANDINGS)
    search = explore(machine, **of_reader("missing"), stored=False, planted=True)
    assert not search.violation, str(search)


@pytest.mark.parametrize("guard", GUARDS)
def test_every_guard_is_needed(guard: str) -> None:
    search = search_without(guard)
    print(f"without {guard}: {search}")
    assert search.violation.startswith(GUARDS[guard]), f"without {guard}: {search}"


def search_without(guard: str) -> Search:
    if guard in READER_OF:
        reader = READER_OF[guard]
        # A submission that only an old primary knows, or one that all know.
        more = {"stored": False} if reader == "missing" else {}
        return explore(Machine(frozenset({guard}), reader=reader), **of_reader(reader), **more)
    if guard in UNOWNED:
        left_by = frozenset({guard, "missing_read_by_majority"})
        machine = Machine(left_by, reader="missing", landings_max=LONE_LANDINGS)
        return explore(machine, **of_reader("missing"), stored=False, planted=True)
    if guard in AFTER_THE_FACT:
        machine = Machine(frozenset({guard}), landings_max=LONE_LANDINGS)
        plant = "a mark far ahead" if guard == "repair_above_both" else "a mark"
        return explore(machine, aborts=0, plant=plant)
    machine = Machine(frozenset({guard}), tokens=guard != "rejudge_new_id")
    aborts = 2 if guard == "drain_refunds_bound" else 0 if GUARDS[guard] == "I8" else 1
    cancels = 1 if guard in CANCELS else 0
    return explore(machine, aborts=0 if cancels else aborts, cancels=cancels)


def of_reader(reader: str) -> dict[str, Any]:
    """Return the bounds of a search with one failover, met by that reader."""
    cancels = 1 if reader in ("restores", "retention") else 0
    return {"aborts": 0, "cancels": cancels, "failovers_left": 1}


def test_the_model_takes_exactly_the_edges_of_the_table(
    complete_search: Search, search_with_a_cancel: Search
) -> None:
    repaired = [search_with_a_plant(plant) for plant in ("another job", "no verdict")]
    listed = {
        (edge.event, source.value, edge.target.value)
        for edge in states.EDGES
        for source in edge.sources
    }
    taken = [complete_search, search_with_a_cancel, *repaired]
    assert set().union(*(search.edges for search in taken)) == listed
