"""The worlds of the model: what is stored, under way, or remembered, and what must hold of it."""

from __future__ import annotations

from typing import NamedTuple

MAX_ATTEMPTS = 2
REFUNDS_MAX = 1
LANDINGS_MAX = 2
NONE = -1
RUNNERS = ("A", "B")
SWEEP = "sweep"

GUARDS = {
    # what is dropped: the invariant that a search then finds broken
    "enqueue_if_absent": "I7",
    "enqueue_missing": "I8",
    "claim_counts": "I5",
    "lease_fence": "I3",
    "reclaim_deadline": "I2",
    "reclaim_budget": "I5",
    "reclaim_landing": "I8",
    "complete_owner": "I3",
    "complete_token": "I4",
    "complete_landing_deadline": "I3",
    "landing_fence": "I3",
    "end_fence": "I3",
    "restore_fence": "I3",
    "abort_owner": "I3",
    "abort_from_leased": "I3",
    "drain_refunds_bound": "I5",
    "exhaust_deadline": "I2",
    "exhaust_budget": "I5",
    "exhaust_fence": "I3",
    "exhaust_landing": "I8",
    "exhaust_clears_owner": "I3",
    "rejudge_fence": "I4",
    "rejudge_new_id": "I4",
    "result_fence": "I4",
    "mark_fence": "I4",
    "mark_if_older": "I1",
    "mark_own_fence": "I6",
    "je_keeps_result": "I6",
    "je_minds_mark": "I1",
    "counters_before_end": "I1",
    "cancel_fence": "I3",
    "cancel_clears_owner": "I3",
    "cancel_after_a_result": "I1",
    "cancel_is_swept": "I8",
    "cancel_brings_back_under_its_fence": "I1",
    "cancel_recounts": "I1",
}
CANCELS = frozenset(guard for guard in GUARDS if guard.startswith("cancel_"))
"""Guards that a search misses only where a rejudge may be taken back."""


class Landing(NamedTuple):
    """A landing under way in some API process: what it will do next."""

    by: str
    job: int
    fence: int
    at: str
    says: str = ""
    outdated: bool = False
    """A rejudge that came after it has taken effect."""


class Had(NamedTuple):
    """The first lease that a runner had: the older judging that it may send late."""

    job: int
    token: int
    rejudged: str


class World(NamedTuple):
    """Everything that is stored, under way, or remembered by runners."""

    # the job
    state: str = "absent"
    job: int = 0
    owner: str = ""
    token: int = NONE
    fence: int = 0
    attempts: int = 0
    refunds: int = 0
    lease_over: bool = False
    landing_over: bool = False
    mark_due: int = NONE
    outcome: str = ""
    # the submission
    sub_fence: int = 0
    status: str = "pending"
    result: tuple[int, str] | None = None
    counters_fresh: bool = True
    # processes
    landings: tuple[Landing, ...] = ()
    submitting: bool = True
    rejudger: str = "idle"
    rejudge_fence: int = NONE
    cancels_left: int = 0
    restore_due: int = NONE
    aborts_left: int = 1
    had: tuple[Had | None, Had | None] = (None, None)
    # what really happened, kept to judge by
    leases: int = 0
    rejudged: str = ""
    result_outdated: bool = False


class Move(NamedTuple):
    """One step: its name, whether it needs nobody but runner B, time and the sweep; the edge it
    takes, and the invariant that it breaks by itself."""

    name: str
    fair: bool
    world: World
    edge: str = ""
    broken: str = ""


def number_fences(world: World) -> World:
    """Return the world with its fences renumbered, in their order, from 0."""
    used = {0, world.fence, world.sub_fence, world.mark_due, world.token, world.rejudge_fence}
    used.add(world.restore_due)
    used |= {landing.fence for landing in world.landings}
    used |= {had.token for had in world.had if had}
    used.discard(NONE)
    number = {fence: rank for rank, fence in enumerate(sorted(used))}
    number[NONE] = NONE
    if all(fence == rank for fence, rank in number.items()):
        return world
    return world._replace(
        fence=number[world.fence],
        sub_fence=number[world.sub_fence],
        mark_due=number[world.mark_due],
        token=number[world.token],
        rejudge_fence=number[world.rejudge_fence],
        restore_due=number[world.restore_due],
        landings=tuple(landing._replace(fence=number[landing.fence]) for landing in world.landings),
        had=tuple(had and had._replace(token=number[had.token]) for had in world.had),
    )


def is_spent(world: World, landing: Landing) -> bool:
    """Tell whether a landing can change nothing any more, all fences being checked."""
    if landing.fence == world.fence and landing.job == world.job and world.state == "landing":
        return False
    return landing.at == "end" or (landing.at == "write" and landing.fence < world.sub_fence)


def breaks_by_writing(world: World, landing: Landing) -> str:
    if landing.fence < world.sub_fence:
        return "I4 a result under an older fence was written"
    return "I4 a result from before the rejudge was written" if landing.outdated else ""


def check_world(world: World) -> str:
    """Return the first invariant that this world breaks, or an empty string."""
    if world.state == "absent":
        return ""
    if world.sub_fence > world.fence:
        return "I4 submission.fence > job.fence"
    if world.attempts > MAX_ATTEMPTS or world.refunds > REFUNDS_MAX:
        return "I5 a budget is overdrawn"
    if world.leases != world.attempts + world.refunds:
        return "I5 a lease was not counted"
    current = [
        landing
        for landing in world.landings
        if landing.fence == world.fence and landing.job == world.job
    ]
    if len(current) > 1:
        return "I3 two landings under one fence"
    if current and world.state != "landing":
        return f"I3 a landing goes on under the fence of a job that is {world.state}"
    if current and world.owner != ("" if current[0].by == SWEEP else current[0].by):
        return "I3 a landing goes on for one that is not the owner"
    if world.state == "done":
        return _check_done(world)
    return ""


def _check_done(world: World) -> str:
    if world.outcome == "cancelled":
        return _check_cancelled(world)
    stands = {"verdict": "real", "judge_error": "je"}.get(world.outcome)
    if world.status != stands or world.result != (world.job, stands):
        return "I1 done without its result"
    if not world.counters_fresh:
        return "I1 done with stale counters"
    return ""


def _check_cancelled(world: World) -> str:
    if world.owner:
        return "I3 cancelled, and still owned"
    if world.result is None:
        return "I1 cancelled without an earlier result"
    if world.restore_due != NONE:
        return ""
    if world.status != world.result[1]:
        return "I1 cancelled, and the result that stands is not shown"
    return "" if world.counters_fresh else "I1 cancelled with stale counters"


def at_rest(world: World) -> bool:
    """Tell whether everything has come to its end: a verdict, counted, and no mark missing."""
    due = (world.mark_due, world.restore_due) != (NONE, NONE)
    return world.state == "done" and world.status != "pending" and not due
