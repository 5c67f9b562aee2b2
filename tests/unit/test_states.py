"""The edge table says what the lifecycle says, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatch import states
from dispatch.states import EDGES, HELD, OPEN, TRANSITIONS, State

LIFECYCLE = """
rejudge_pending   pending               pending
rejudge           leased landing done   pending
claim             pending               leased
reclaim           leased landing        leased
complete_begins   leased landing        landing
complete_ends     landing               done
complete_restore  landing               leased
abort             leased                pending
exhaust_begins    leased landing        landing
exhaust_ends      landing               done
cancel            pending leased landing done
move_to_front     pending               pending
repair            pending leased landing done pending
"""


def test_the_table_is_the_lifecycles() -> None:
    listed = {}
    for line in LIFECYCLE.strip().splitlines():
        event, *sources, target = line.split()
        listed[event] = (set(sources), target)
    assert {edge.event: (set(edge.sources), edge.target) for edge in EDGES} == listed


def test_transitions_are_made_of_the_edges() -> None:
    expected = {
        State.PENDING: {State.PENDING, State.LEASED, State.DONE},
        State.LEASED: {State.LEASED, State.LANDING, State.PENDING, State.DONE},
        State.LANDING: {State.LANDING, State.LEASED, State.DONE, State.PENDING},
        State.DONE: {State.PENDING},
    }
    assert expected == TRANSITIONS


def test_i1_done_is_reached_from_a_landing_alone_or_where_an_earlier_one_stands() -> None:
    into_done = [edge for edge in EDGES if edge.target is State.DONE and edge != states.CANCEL]
    assert into_done
    assert all(edge.sources == {State.LANDING} for edge in into_done)


def test_i8_every_state_leads_to_a_verdict() -> None:
    saved = {State.DONE}
    for _ in State:
        # A cancel is a human's.
        saved |= {
            source
            for edge in EDGES
            for source in edge.sources
            if edge.target in saved and edge != states.CANCEL
        }
    assert saved == set(State)


def test_every_state_is_open_or_done() -> None:
    assert OPEN | {State.DONE} == set(State)
    assert HELD < OPEN


def test_nothing_can_be_added_to_the_table() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[State.DONE] = frozenset()  # type: ignore[index]


def test_the_state_is_written_in_one_place() -> None:
    store = Path(states.__file__).with_name("store.py").read_text()
    writes = [line for line in store.splitlines() if '"state": edge' in line]
    assert len(writes) == 1
    inserts = [line for line in store.splitlines() if '"state": State.PENDING.value' in line]
    # The insert, and the six reads of the line.
    assert len(inserts) == 7
