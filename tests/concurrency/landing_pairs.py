"""What may run beside a landing: each pair (or three) of operations with what must hold after it.

`ada` and `ben` have handed in to problems 1 and 2 of homework `hw`; the submissions wait to land.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dispatch.job import Ended
from dispatch.states import State
from mongo import check, engine, landing
from tests.digest import blob_names
from tests.factories import EPOCH, handed_out, results
from tests.faults.landing_world import World

Operation = Callable[[World], object]

WAITING = (("s1", "ada", 1), ("s2", "ada", 1), ("s3", "ada", 2), ("s4", "ben", 1))


@dataclass(frozen=True, kw_only=True)
class Together:
    """Operations that run at once."""

    name: str
    operations: Sequence[Operation]
    prepare: Callable[[World], None] = lambda world: None
    """What else there is before they start."""
    after: Callable[[World], None] = lambda world: None
    """What must hold afterwards, besides invariants and a recompute."""
    alike: bool = False
    """The operations are of one kind: their order need not be turned around."""


def course(world: World) -> None:
    world.user("ada", "ben")
    world.problem(1)
    world.problem(2)
    world.homework("hw", [1, 2], ["ada", "ben"])
    for submission_id, username, problem_id in WAITING:
        world.submit(submission_id, username, problem_id)
    # Landings without a job bring fences of their own.
    world.raw["jobs"].delete_many({})


# -- operations ----------------------------------------------------------------------------


def land(submission_id: str, verdict: str = "AC", *, fence: int = 3) -> Operation:
    """A landing without its job: what runs between its begin and its end."""
    # Nothing is printed: outputs are their landing's own, and would only lengthen the schedules.
    tasks = [[replace(case, stdout="") for case in task] for task in results(verdict)]

    def operation(world: World) -> object:
        kept = world.raw["submissions"].find_one({"_id": submission_id})
        return world.land(
            submission_id=submission_id,
            job_id=kept["job_id"] if kept else "jb_gone",
            fence=fence,
            tasks=tasks,
            handed_out=handed_out((100, 1)),
        )

    return operation


def give_up(submission_id: str) -> Operation:
    """The judge error of the same job lands: its attempts are used up."""

    def operation(world: World) -> object:
        kept = world.raw["submissions"].find_one({"_id": submission_id})
        return world.land(
            submission_id=submission_id,
            job_id=kept["job_id"] if kept else "jb_gone",
            fence=5,
            tasks=None,
            handed_out=None,
        )

    return operation


def complete(submission_id: str, verdict: str) -> Operation:
    """A whole `complete` of the lease that is there."""

    def operation(world: World) -> object:
        return world.complete(world.leases[submission_id], verdict)

    return operation


def judge_next(verdict: str) -> Operation:
    """Another runner asks for a job and lands it."""

    def operation(world: World) -> object:
        job = world.claim(world.other_runner)
        return None if job is None else world.complete(job, verdict)

    return operation


def judge_after_the_lease(world: World) -> object:
    """The runner's lease runs out, and another one judges otherwise."""
    world.clock.advance(31)
    return judge_next("WA")(world)


def rejudge(submission_id: str) -> Operation:
    return lambda world: world.rejudge(submission_id)


def edit_dates(world: World) -> None:
    """The homework now starts after everything that was handed in."""
    world.homework("hw", [1, 2], ["ada", "ben"], start=EPOCH.replace(year=EPOCH.year + 1), end=END)


def edit_dates_back(world: World) -> None:
    world.homework("hw", [1, 2], ["ada", "ben"], end=END)


def remove_ada(world: World) -> None:
    world.homework("hw", [1, 2], ["ben"])


def remove_problem(world: World) -> None:
    world.homework("hw", [2], ["ada", "ben"])


def add_everything(world: World) -> None:
    world.homework("hw2", [1, 2], ["ada", "ben"])


def delete(submission_id: str) -> Operation:
    """An operator removes a submission's document, and has its owner recomputed."""

    def operation(world: World) -> None:
        gone = engine.submissions().find_one_and_delete({"_id": submission_id})
        if gone is not None:
            landing.finish_judging(gone["username"], gone["problem_id"])

    return operation


def repair(world: World) -> None:
    check.repair(check.scope(username="ada"), advance=lambda: None)


END = EPOCH.replace(year=EPOCH.year + 2)


# -- preparations and what must hold -------------------------------------------------------


def without_documents(world: World) -> None:
    """As a crash between the saving of a homework and its recompute leaves it."""
    world.raw["student_status"].delete_many({})
    world.raw["homeworks"].update_many({}, {"$set": {"recompute_due": True}})


def swept(world: World) -> None:
    """The sweep finishes what that crash left."""
    world.maintain()
    assert world.wrong() == []


def landed(*submission_ids: str) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        for submission_id in submission_ids:
            land(submission_id)(world)

    return prepare


def leased(submission_id: str) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        world.maintain()
        world.raw["jobs"].delete_many({"_id": {"$ne": submission_id}})
        job = world.claim()
        assert job is not None
        world.leases = {submission_id: job}

    return prepare


def pending_rejudge(world: World) -> None:
    """One landed job alone."""
    leased("s1")(world)
    assert complete("s1", "AC")(world) is Ended.LANDED


def no_real_result_is_lost(world: World) -> None:
    """Whichever was stored first stands: a real result, or the judge error under a newer fence."""
    kept = world.raw["submissions"].find_one({"_id": "s1"})
    assert kept is not None
    assert (kept["status"], kept["fence"]) in ((AC, 5), (JE, 5))
    assert kept["counted"]["status"] == kept["status"]


def shows(submission_id: str, status: int) -> Callable[[World], None]:
    def check_it(world: World) -> None:
        kept = world.raw["submissions"].find_one({"_id": submission_id})
        assert kept is not None
        assert (kept["status"], kept["result"]["status"]) == (status, status)

    return check_it


def who_holds_it_last_is_shown(world: World) -> None:
    """A landing that woke up too late has changed nothing, and has left nothing behind."""
    job = world.job("s1")
    assert job.state is State.DONE
    shows("s1", AC if job.leased_by == world.runner.runner_id else WA)(world)
    world.maintain()
    assert blob_names(world.raw).count("outputs/s1") == 1


def judged_after_all(world: World) -> None:
    """Whatever waits is judged; the rejudge was asked for, so its verdict is the one shown."""
    judge_next("WA")(world)
    assert world.wrong() == []
    shows("s1", 1)(world)


AC, WA, JE = 0, 1, 6

PAIRS = (
    Together(name="same_problem", alike=True, operations=[land("s1"), land("s2", "WA")]),
    Together(name="other_problem", alike=True, operations=[land("s1"), land("s3")]),
    Together(name="two_students", alike=True, operations=[land("s1"), land("s4")]),
    Together(
        name="first_of_the_homework",
        alike=True,
        prepare=without_documents,
        operations=[land("s1"), land("s3")],
        after=swept,
    ),
    Together(
        name="a_slow_landing_and_a_newer_one",
        operations=[land("s1", "AC", fence=3), land("s1", "WA", fence=5)],
        after=shows("s1", WA),
    ),
    Together(
        name="a_judge_error_beside_its_job_s_result",
        operations=[land("s1"), give_up("s1")],
        after=no_real_result_is_lost,
    ),
    Together(
        name="a_result_and_a_newer_one_over_an_old",
        alike=True,
        prepare=landed("s1", "s2"),
        operations=[land("s1", "WA", fence=5), land("s2", "WA", fence=5)],
    ),
    Together(
        name="a_landing_that_outlasts_its_lease",
        prepare=leased("s1"),
        operations=[complete("s1", "AC"), judge_after_the_lease],
        after=who_holds_it_last_is_shown,
    ),
    Together(
        name="rejudge",
        prepare=leased("s1"),
        operations=[complete("s1", "AC"), rejudge("s1")],
        after=judged_after_all,
    ),
    Together(
        name="rejudge_judged_at_once",
        prepare=pending_rejudge,
        operations=[rejudge("s1"), judge_next("WA")],
        after=judged_after_all,
    ),
    Together(name="dates", prepare=landed("s2"), operations=[land("s1"), edit_dates]),
    Together(
        name="two_edits", alike=True, prepare=landed("s1"), operations=[edit_dates, edit_dates_back]
    ),
    Together(name="removal", prepare=landed("s2"), operations=[land("s1"), remove_ada]),
    Together(
        name="removal_without_documents",
        prepare=without_documents,
        operations=[land("s1"), remove_ada],
    ),
    Together(name="problem_list", prepare=landed("s2"), operations=[land("s1"), remove_problem]),
    Together(name="new_homework", operations=[land("s1"), add_everything]),
    Together(name="deletion", prepare=landed("s2"), operations=[land("s1"), delete("s1")]),
    Together(
        name="deletion_of_another",
        prepare=landed("s2"),
        operations=[land("s1"), delete("s2")],
    ),
    Together(name="repair", prepare=landed("s2"), operations=[land("s1"), repair]),
)
THREES = (
    Together(name="three_landings", operations=[land("s1"), land("s2", "WA"), land("s3")]),
    Together(
        name="two_landings_and_an_edit",
        operations=[land("s1"), land("s3"), edit_dates],
    ),
)
