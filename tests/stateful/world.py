"""The worlds of the model: what is stored, under way, or remembered, and what must hold of it."""

from __future__ import annotations

from typing import NamedTuple

MAX_ATTEMPTS = 2
REFUNDS_MAX = 1
LANDINGS_MAX = 2
NONE = -1
RUNNERS = ("A", "B")
SWEEP = "sweep"

JOB, REJUDGED, PHANTOM, REPAIRED = range(4)
"""Job ids: the first one's, the rejudge's, one that only an old primary knows, the repairs'."""


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


class Act(NamedTuple):
    """What somebody means to write on one document because of what another said."""

    kind: str
    fence: int = NONE
    """The job's, as it was read, or of what is due."""
    job: int = NONE
    state: str = ""
    above: int = NONE
    """The submission's fence, as it was read."""
    named: int = NONE
    """The job that the submission named, as it was read."""
    left: int = 0
    """How many recomputes the reader has seen that a majority has yet to see."""
    counts_it: bool = True
    """A recompute saw the result that stands."""


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
    # the submission; `sub_job` is the job that it names, while it is pending
    stored: bool = True
    sub_job: int = JOB
    sub_fence: int = 0
    status: str = "pending"
    result: tuple[int, str] | None = None
    counters_fresh: bool = True
    # processes
    landings: tuple[Landing, ...] = ()
    submitting: bool = True
    rejudger: str = "idle"
    rejudge_fence: int = NONE
    rejudge_job: int = NONE
    cancels_left: int = 0
    restore_due: int = NONE
    aborts_left: int = 1
    had: tuple[Had | None, Had | None] = (None, None)
    # a failover, and what is done because of what was read before or beside it
    failovers_left: int = 0
    act: Act | None = None
    # what an older version may have left, once
    plant: str = ""
    planted: bool = False
    repairs: int = 0
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
    """Return the world with its fences renumbered, in their order, from 0.

    What is above the job's fence (an old primary's, or an older version's) keeps its distance: the
    next fences that are really given may be the same.
    """
    newest = world.fence
    used = {0, newest, world.sub_fence, world.mark_due, world.token, world.rejudge_fence}
    used.add(world.restore_due)
    for landing in world.landings:
        used.add(landing.fence)
    for had in world.had:
        if had:
            used.add(had.token)
    if world.act is not None:
        used |= {world.act.fence, world.act.above}
    used.discard(NONE)
    ordered = sorted(used)
    if newest == ordered.index(newest):
        return world
    rank = ordered.index(newest)
    number = {fence: min(place, rank) for place, fence in enumerate(ordered)}
    for fence in ordered[rank + 1 :]:
        number[fence] = rank + fence - newest
    number[NONE] = NONE
    return world._replace(
        fence=number[world.fence],
        sub_fence=number[world.sub_fence],
        mark_due=number[world.mark_due],
        token=number[world.token],
        rejudge_fence=number[world.rejudge_fence],
        restore_due=number[world.restore_due],
        landings=tuple(landing._replace(fence=number[landing.fence]) for landing in world.landings),
        had=tuple(had and had._replace(token=number[had.token]) for had in world.had),
        act=world.act
        and world.act._replace(fence=number[world.act.fence], above=number[world.act.above]),
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


def is_due(world: World) -> bool:
    """Tell whether a second half has yet to follow its first."""
    return (world.mark_due, world.restore_due) != (NONE, NONE)


def is_impossible(world: World) -> bool:
    """Tell whether nobody's steps lead here: the submission beside its job, nothing being due."""
    if not world.stored or world.state == "absent":
        return False
    if world.sub_fence > world.fence:
        return True
    if world.status != "pending" or is_due(world):
        return False
    return world.state == "done" or world.sub_job != world.job


def check_world(world: World) -> str:
    """Return the first invariant that this world breaks, or an empty string.

    What an older version has left is not held against it until that has been put right.
    """
    if world.state == "absent":
        return ""
    left = world.planted and not world.repairs and is_impossible(world)
    if world.sub_fence > world.fence and not left:
        return "I4 submission.fence > job.fence"
    if is_impossible(world) and world.state != "done" and not world.planted:
        return "I4 pending for a job that is no more"
    if world.attempts > MAX_ATTEMPTS or world.refunds > REFUNDS_MAX:
        return "I5 a budget is overdrawn"
    if world.leases != world.attempts + world.refunds:
        return "I5 a lease was not counted"
    if world.repairs > 1:
        return "I8 the repair goes round"
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
    if world.state == "done" and world.stored and not left:
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
    """Tell whether everything has come to its end: a verdict, counted, and no mark missing.

    So it has where the submission was never taken in, whoever gave it a job.
    """
    if not world.stored:
        return world.state in ("absent", "done")
    if is_due(world) or world.status == "pending":
        return False
    return world.state == "absent" or (world.state == "done" and not is_impossible(world))
