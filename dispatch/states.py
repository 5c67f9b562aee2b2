"""The states of a job and the only table of edges between them.

Guarantees: every write of `state` goes through an `Edge` of this table (`store` builds both the
guard and the effect from it), so what is not listed here cannot happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    LEASED = "leased"
    LANDING = "landing"
    DONE = "done"


OPEN = frozenset({State.PENDING, State.LEASED, State.LANDING})
HELD = frozenset({State.LEASED, State.LANDING})
"""States that have a lease deadline."""


class Outcome(StrEnum):
    """How a job that is done ended."""

    VERDICT = "verdict"
    JUDGE_ERROR = "judge_error"
    DROPPED = "dropped"
    """Its submission was gone, or carried something newer."""
    CANCELLED = "cancelled"
    """An admin took the rejudge back: the earlier result stands."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One row of the transition table. `event` names it in histories, logs and metrics."""

    event: str
    sources: frozenset[State]
    target: State


REJUDGE_PENDING = Edge("rejudge_pending", frozenset({State.PENDING}), State.PENDING)
REJUDGE = Edge("rejudge", frozenset({State.LEASED, State.LANDING, State.DONE}), State.PENDING)
CLAIM = Edge("claim", frozenset({State.PENDING}), State.LEASED)
RECLAIM = Edge("reclaim", HELD, State.LEASED)
COMPLETE_BEGINS = Edge("complete_begins", HELD, State.LANDING)
COMPLETE_ENDS = Edge("complete_ends", frozenset({State.LANDING}), State.DONE)
COMPLETE_RESTORE = Edge("complete_restore", frozenset({State.LANDING}), State.LEASED)
ABORT = Edge("abort", frozenset({State.LEASED}), State.PENDING)
EXHAUST_BEGINS = Edge("exhaust_begins", HELD, State.LANDING)
EXHAUST_ENDS = Edge("exhaust_ends", frozenset({State.LANDING}), State.DONE)

CANCEL = Edge("cancel", OPEN, State.DONE)
MOVE_TO_FRONT = Edge("move_to_front", frozenset({State.PENDING}), State.PENDING)
REPAIR = Edge("repair", frozenset(State), State.PENDING)

EDGES = (
    REJUDGE_PENDING,
    REJUDGE,
    CLAIM,
    RECLAIM,
    COMPLETE_BEGINS,
    COMPLETE_ENDS,
    COMPLETE_RESTORE,
    ABORT,
    EXHAUST_BEGINS,
    EXHAUST_ENDS,
    CANCEL,
    MOVE_TO_FRONT,
    REPAIR,
)
"""Every edge but `enqueue`, which is an insert and has no source, and `renew`, which leaves the
state as it is."""


def _transitions() -> Mapping[State, frozenset[State]]:
    reachable: dict[State, set[State]] = {state: set() for state in State}
    for edge in EDGES:
        for source in edge.sources:
            reachable[source].add(edge.target)
    return MappingProxyType({state: frozenset(targets) for state, targets in reachable.items()})


TRANSITIONS = _transitions()
"""State to the states that one transition can lead to."""
