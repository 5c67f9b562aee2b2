"""What a user's counters are the sums of: per problem, how many submissions were judged and how
many of them accepted.

Guarantees: I6. An entry is only ever counted from the submissions to its problem, and the counters
are only ever added up from the entries, in the one guarded write that brings both: so a landing
costs what was handed in to its own problem, however much the user has handed in besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dispatch.contract import Verdict
from mongo import engine

Document = dict[str, Any]
Tally = Mapping[str, Mapping[str, int]]
"""Problem id (as text) to `judged` and `accepted`. No entry: nothing was judged."""


def of_user(username: str) -> Document:
    """Return the whole tally, counted from the submissions by their index alone."""
    accepted = {"$cond": [{"$eq": ["$counted.status", Verdict.AC.value]}, 1, 0]}
    groups = engine.submissions().aggregate(
        [
            {"$match": {"username": username, "counted.status": {"$gte": 0}}},
            {
                "$group": {
                    "_id": "$problem_id",
                    "judged": {"$sum": 1},
                    "accepted": {"$sum": accepted},
                }
            },
        ]
    )
    return {
        str(group["_id"]): {"judged": group["judged"], "accepted": group["accepted"]}
        for group in groups
    }


def of_problem(statuses: Iterable[int]) -> dict[str, int] | None:
    """Return the entry that the judged submissions to one problem add up to; None for none."""
    counted = list(statuses)
    if not counted:
        return None
    return {"judged": len(counted), "accepted": counted.count(Verdict.AC.value)}


def counters(tally: Tally) -> Document:
    """Return the counters that a tally adds up to."""
    return {
        "submission": sum(entry["judged"] for entry in tally.values()),
        "AC_submission": sum(entry["accepted"] for entry in tally.values()),
        "AC_problem_ids": sorted(
            int(problem_id) for problem_id, entry in tally.items() if entry["accepted"]
        ),
    }
