"""What a landing can meet, each prepared up to the moment before it lands.

The submission is always `s1` of `ada` to problem 1; what else is there makes its counters and
standings depend on more than it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dispatch import job as verbs
from dispatch.job import Ended
from dispatch.records import Job
from dispatch.states import State
from tests.factories import DAY, EPOCH
from tests.faults.landing_world import RESENDS_S, World

S1 = "s1"
LEASE_OVER_S = 31


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One landing to be disturbed."""

    name: str
    prepare: Callable[[World], None]
    tasks: tuple[str, ...] = ()
    """What the runner reports; without it a judge error lands."""
    writes_min: int
    """How many writes the undisturbed landing has at the least, the job's own included."""
    abort: bool = False
    """The judge error is brought about by an abort, not by the sweep."""

    def lease(self, world: World) -> Job:
        return world.job(S1)

    def act(self, world: World, lease: Job) -> bool:
        """Land, or try to; tell whether the caller was told that it is done."""
        if self.tasks:
            ended = world.complete(lease, *self.tasks)
            return ended in (Ended.LANDED, Ended.ALREADY_LANDED)
        if self.abort and world.job(S1).state is State.LEASED:
            world.abort(lease, "prep_failed")
        else:
            verbs.sweep(world.queue, process_result=world.land, now=world.clock)
        return world.job(S1).state is State.DONE

    def resend(self, world: World, lease: Job) -> None:
        """Do what the runner does until it is told that its result has landed."""
        for delay_s in RESENDS_S:
            world.clock.advance(delay_s)
            if self.tasks or self.abort:
                world.heartbeat(lease)
            if self.act(world, lease):
                return
        raise AssertionError(f"given up: {world.job(S1)}")

    def hand_over(self, world: World, lease: Job) -> None:
        """The runner is silent; another one judges alike. Then the first wakes up again."""
        for _ in range(3):
            world.clock.advance(LEASE_OVER_S)
            verbs.sweep(world.queue, process_result=world.land, now=world.clock)
            taken = world.claim(world.other_runner)
            if taken is not None:
                assert world.complete(taken, *self.tasks) is Ended.LANDED
        assert world.job(S1).state is State.DONE
        if self.tasks:
            assert world.complete(lease, *self.tasks) in (Ended.ALREADY_LANDED, Ended.LEASE_LOST)


def course(world: World) -> None:
    world.user("ada", "ben")
    world.problem(1)
    world.problem(2)
    world.homework("hw", [1, 2], ["ada", "ben"])
    world.submit("s0", "ada", 2)
    world.judge("s0", "AC")


def use_up(world: World, *, leases: int) -> None:
    """Let the job be leased that often, and each lease but the last run out."""
    for number in range(leases):
        if number:
            world.clock.advance(LEASE_OVER_S)
        assert world.claim() is not None


def first(world: World) -> None:
    course(world)
    world.submit(S1, "ada", 1)
    use_up(world, leases=1)


def _rejudge_after(world: World, *tasks: str) -> None:
    world.submit(S1, "ada", 1)
    world.judge(S1, *tasks)
    world.rejudge(S1)
    use_up(world, leases=1)


def rejudge_after(*tasks: str) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        course(world)
        _rejudge_after(world, *tasks)

    return prepare


def another_accepted(world: World) -> None:
    """Another accepted submission to the problem stands: it stays accepted."""
    course(world)
    world.submit("s2", "ada", 1)
    world.judge("s2", "AC")
    _rejudge_after(world, "AC")


def fewer_cases(world: World) -> None:
    course(world)
    world.problem(1, (40, 2), (60, 1))
    world.submit(S1, "ada", 1)
    world.judge(S1, "CE CE", "CE")
    world.problem(1, (100, 1), text="2\n")
    world.rejudge(S1)
    use_up(world, leases=1)


def three_homeworks(world: World) -> None:
    course(world)
    late = EPOCH - DAY
    world.homework("late", [1], ["ben", "ada"], end=late, penalty="score=score*(0.7**overtime)")
    world.homework("over", [2, 1], ["ada"], end=late)
    world.homework("later", [1], ["ada"], start=EPOCH + DAY)
    world.submit(S1, "ada", 1)
    use_up(world, leases=1)


def late_with_penalty(world: World) -> None:
    """Half of the score in time, the rest a day too late."""
    course(world)
    end = EPOCH - DAY
    world.problem(1, (50, 1), (50, 1))
    world.homework("hw", [1, 2], ["ada"], end=end, penalty="score=score*(0.7**overtime)")
    world.clock.at = end
    world.submit("s2", "ada", 1)
    world.judge("s2", "AC", "WA")
    world.clock.at = EPOCH
    world.clock.advance(10)
    world.submit(S1, "ada", 1)
    use_up(world, leases=1)


def exhausted(world: World) -> None:
    course(world)
    world.submit(S1, "ada", 1)
    use_up(world, leases=3)
    world.clock.advance(LEASE_OVER_S)


def exhausted_rejudge(world: World) -> None:
    """The last real result keeps counting, the judge error is shown."""
    course(world)
    _rejudge_after(world, "AC")
    world.clock.advance(LEASE_OVER_S)
    use_up(world, leases=2)
    world.clock.advance(LEASE_OVER_S)


def last_attempt(world: World) -> None:
    course(world)
    world.submit(S1, "ada", 1)
    use_up(world, leases=3)


# The writes: the landing begins; the outputs; the result; the counters; the standings of all
# homeworks at once; the replaced outputs; the landing ends. A judge error has no outputs; on
# top of a real result it is a second, other conditional write; an abort first tries to give back.
# The cases are as many as the undisturbed landing really has; here is what it must have.
SCENARIOS = (
    Scenario(name="first", prepare=first, tasks=("AC",), writes_min=6),
    Scenario(name="ac_to_wa", prepare=rejudge_after("AC"), tasks=("WA",), writes_min=7),
    Scenario(name="wa_to_ac", prepare=rejudge_after("WA"), tasks=("AC",), writes_min=7),
    Scenario(name="another_accepted", prepare=another_accepted, tasks=("WA",), writes_min=7),
    Scenario(name="ce_to_ac_fewer_cases", prepare=fewer_cases, tasks=("AC",), writes_min=7),
    Scenario(name="three_homeworks", prepare=three_homeworks, tasks=("AC",), writes_min=6),
    Scenario(name="late_with_penalty", prepare=late_with_penalty, tasks=("AC", "AC"), writes_min=6),
    Scenario(name="je_by_sweep", prepare=exhausted, writes_min=5),
    Scenario(name="je_of_a_rejudge", prepare=exhausted_rejudge, writes_min=7),
    Scenario(name="je_by_abort", prepare=last_attempt, writes_min=6, abort=True),
)
LAST_ATTEMPT = Scenario(name="last_attempt", prepare=last_attempt, tasks=("AC",), writes_min=6)
JUDGE_ERROR = Scenario(name="judge_error", prepare=exhausted, writes_min=5)
