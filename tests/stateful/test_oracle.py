"""I6: random courses, judged in random order with repeats, crashes and edits in between.

The oracle is plain Python: the scoring rules applied to the final list of submissions, and for
each submission the few lines that say which of its results stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from mongo import recompute, sweep
from mongo.embedded import EmbeddedMongo
from tests.factories import EPOCH, handed_out, results
from tests.faults.cable import Cable, Cut, strung
from tests.faults.landing_world import World, connected
from tests.faults.ledger import wrong_totals

EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "500"))
STUDENTS = ("ada", "a.b", "$x")
PROBLEMS = (1, 2, 3)
HOMEWORKS = ("first", "second", "third")
PENALTIES = ("score = 0", "score=score*(0.7**overtime)", "if overtime>1: score=0", "score / 2")
EMPTIED = ("users", "homeworks", "student_status", "submissions", "jobs")
HALF_DAY = timedelta(hours=12)
DUE = {"recompute_due": True}
JE = 6
PENDING = -1
# Two tasks, of 30 and 70: what is reported, and what it comes to as (status, score).
REPORTS: dict[tuple[str, ...], tuple[int, int]] = {
    ("AC", "AC"): (0, 100),
    ("AC", "WA"): (1, 30),
    ("TLE", "AC"): (3, 70),
    ("WA", "WA"): (1, 0),
    ("CE", "CE"): (2, 0),
    ("JE", "AC"): (JE, 70),
}


# -- what happens --------------------------------------------------------------------------


@dataclass(frozen=True)
class Homework:
    """The settings that an edit gives a homework."""

    homework_id: str
    start: int
    end: int
    penalty: str
    problem_ids: list[int]
    students: list[str]


@dataclass(frozen=True)
class Submission:
    """One that was handed in; `judgings` are landed under growing fences."""

    username: str
    problem_id: int
    half_days: int


@dataclass(frozen=True)
class Landing:
    """A result (None: a judge error) of a submission's job."""

    submission: int
    job: int
    report: tuple[str, ...] | None


@dataclass(frozen=True)
class Rejudge:
    """The mark of a rejudge, which makes the submission pending again."""

    submission: int


@dataclass(frozen=True)
class Step:
    """One thing that happens, perhaps with a crash in it, perhaps once more at once."""

    event: Homework | Landing | Rejudge
    cut: Cut | None
    again: bool
    stale: bool
    """Under a fence older than the newest: a landing that was slow."""


subset = st.lists(st.sampled_from(PROBLEMS), min_size=1, unique=True)
homeworks = st.builds(
    Homework,
    st.sampled_from(HOMEWORKS),
    st.integers(-6, 2),
    st.integers(0, 6),
    st.sampled_from(PENALTIES),
    subset,
    st.lists(st.sampled_from(STUDENTS), unique=True),
)
submissions = st.builds(
    Submission, st.sampled_from(STUDENTS), st.sampled_from(PROBLEMS), st.integers(-8, 12)
)
cuts = st.builds(Cut, write=st.integers(1, 9), after=st.booleans(), for_good=st.booleans())


@st.composite
def events(draw: st.DrawFn, count: int) -> Homework | Landing | Rejudge:
    """Mostly landings."""
    kind = draw(st.sampled_from("LLLLLHHR"))
    if kind == "H":
        return draw(homeworks)
    number = draw(st.integers(0, count - 1))
    if kind == "R":
        return Rejudge(number)
    return Landing(number, draw(st.integers(1, 2)), draw(st.sampled_from([*REPORTS, None])))


@st.composite
def courses(draw: st.DrawFn) -> tuple[list[Homework], list[Submission], list[Step]]:
    handed_in = draw(st.lists(submissions, min_size=1, max_size=5))
    rarely = st.sampled_from((False, False, True))
    step = st.builds(
        Step, event=events(len(handed_in)), cut=st.none() | cuts, again=rarely, stale=rarely
    )
    return (
        draw(st.lists(homeworks, min_size=1, max_size=3, unique_by=lambda made: made.homework_id)),
        handed_in,
        draw(st.lists(step, min_size=2, max_size=12)),
    )


# -- what must come of it for one submission -----------------------------------------------


@dataclass
class Stands:
    """Which result of a submission is shown, and which counts."""

    fence: int = 0
    status: int = PENDING
    job: int = 0
    exhausted: bool = False
    counted: tuple[int, int] | None = None

    def land(self, landing: Landing, fence: int) -> None:
        if fence < self.fence:
            return
        self.fence = fence
        stands = self.job == landing.job and not self.exhausted and self.status != PENDING
        status, score = (JE, 0) if landing.report is None else REPORTS[landing.report]
        if status == JE and stands:
            return  # the real result of this job
        self.status = status
        self.job, self.exhausted = landing.job, status == JE
        if status != JE or self.counted is None or self.counted[0] == JE:
            self.counted = (status, score)


class Play:
    """Plays the steps on the real server, and keeps the books beside it."""

    def __init__(self, world: World, cable: Cable, handed_in: list[Submission]) -> None:
        self.world, self.cable = world, cable
        self.stands = [Stands() for _ in handed_in]
        self.fences = [0] * len(handed_in)
        world.restore({name: [] for name in EMPTIED})
        counters = {"submission": 0, "AC_submission": 0, "AC_problem_ids": [], "version": 0}
        world.raw["users"].insert_many([{"_id": name, **counters} for name in STUDENTS])
        world.raw["submissions"].insert_many(
            [self._document(number, one) for number, one in enumerate(handed_in)]
        )

    def _document(self, number: int, one: Submission) -> dict[str, Any]:
        return {
            "_id": f"s{number}",
            "username": one.username,
            "problem_id": one.problem_id,
            "language": 2,
            "code_blob": "bl_none",
            "submitted_at": EPOCH + one.half_days * HALF_DAY,
            "status": PENDING,
            "job_id": "jb_0",
            "fence": 0,
            "result": None,
            "counted": None,
        }

    def step(self, step: Step) -> None:
        if isinstance(step.event, Rejudge):
            self._mark(step.event.submission)
        elif isinstance(step.event, Homework):
            self._edit(step.event, step.cut)
            if step.again:
                self._edit(step.event, None)
        else:
            self._land(step.event, step.cut, stale=step.stale)
            if step.cut is not None or step.again:
                self._land(step.event, None, stale=False)

    def _mark(self, number: int) -> None:
        """A rejudge takes effect; it is always followed by a landing."""
        self.fences[number] += 1
        fence = self.fences[number]
        self.world.mark(f"s{number}", job_id=f"jb_{fence}", fence=fence)
        stands = self.stands[number]
        stands.fence, stands.status = fence, PENDING

    def _edit(self, edit: Homework, cut: Cut | None) -> None:
        with self.cable.watched(cut), suppress(PyMongoError):
            self.world.homework(
                edit.homework_id,
                edit.problem_ids,
                edit.students,
                start=EPOCH + edit.start * HALF_DAY,
                end=EPOCH + max(edit.start, edit.end) * HALF_DAY,
                penalty=edit.penalty,
            )

    def _land(self, landing: Landing, cut: Cut | None, *, stale: bool) -> None:
        number = landing.submission
        fence = self.fences[number] - 1
        if fence < 1 or not stale:
            self.fences[number] += 2
            fence = self.fences[number]
        submission_id = f"s{number}"
        done = False
        with self.cable.watched(cut), suppress(PyMongoError):
            self.world.land(
                submission_id=submission_id,
                job_id=f"jb_{landing.job}",
                fence=fence,
                tasks=None if landing.report is None else results(*landing.report),
                handed_out=handed_out((30, 1), (70, 1)),
            )
            done = True
        kept = self.world.raw["submissions"].find_one({"_id": submission_id}, {"fence": 1})
        if done or (kept is not None and kept["fence"] == fence):
            self.stands[number].land(landing, fence)

    def finish(self) -> None:
        """What is pending is judged, and the sweep has been here."""
        for number, stands in enumerate(self.stands):
            if stands.status == PENDING and stands.fence:
                self._land(Landing(number, 3, ("AC", "WA")), None, stale=False)
        sweeper = sweep.Sweeper()
        later = self.world.clock() + recompute.RECOMPUTE_LEASE
        for _ in HOMEWORKS:
            sweeper.finish_homeworks(now=later)

    def wrong(self) -> list[str]:
        found = wrong_totals(self.world.raw)
        found += [f"{due['_id']} is due" for due in self.world.raw["homeworks"].find(DUE)]
        kept = {one["_id"]: one for one in self.world.raw["submissions"].find()}
        for number, stands in enumerate(self.stands):
            one = kept[f"s{number}"]
            counted = one["counted"] and (one["counted"]["status"], one["counted"]["score"])
            if (one["status"], counted) != (stands.status, stands.counted):
                found.append(f"s{number} is {one['status']}, {counted}; must be {stands}")
        return found


# -- the property --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cable() -> Cable:
    return Cable()


@pytest.fixture(scope="module")
def world(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]], cable: Cable
) -> Iterator[World]:
    # What is proven is which writes there are, not their durability: the disk is not awaited.
    uri = mongod.uri_for("oracle")
    with connected(uri, mongo_client, cable, w=1, journal=False) as made, strung(cable):
        for problem_id in PROBLEMS:
            made.problem(problem_id, (30, 1), (70, 1))
        yield made
        mongo_client.drop_database("oracle")


@pytest.mark.timeout(600)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(course=courses())
def test_i6_whatever_happens_the_totals_are_those_of_the_submissions(
    world: World, cable: Cable, course: tuple[list[Homework], list[Submission], list[Step]]
) -> None:
    planned, handed_in, steps = course
    play = Play(world, cable, handed_in)
    for homework in planned:
        play._edit(homework, None)
    for step in steps:
        play.step(step)
    play.finish()
    assert play.wrong() == []
