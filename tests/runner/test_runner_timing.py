"""Which run counts, which is repeated, and what waiting for a core is: rules without a clock."""

from __future__ import annotations

import dataclasses

import pytest

from runner.executor import BUSY_TRIES, Case, Submission
from runner.faults import MachineFaultError
from runner.limits import End, Outcome, Usage
from runner.program import run_limits
from runner.rundelay import WAIT_MS_MAX, RunDelay
from runner.timing import RUNS_MAX, better, contended, deserves_another_run
from runner.wire import Verdict
from tests.runner.support import limits

TASK = limits(time_ms=1000)
LIMITS = run_limits(TASK, 0)


def run(cpu_ms: int, end: End = End.EXITED, *, waited_ms: int = 0, wall_ms: int = 0) -> Outcome:
    return Outcome(
        end=end,
        exit_code=0,
        stdout=b"",
        stderr=b"",
        wall_ms=wall_ms or cpu_ms + waited_ms,
        usage=Usage(cpu_ms=cpu_ms, memory_kib=1, out_of_memory=False),
        waited_ms=waited_ms,
    )


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (run(1000), False),
        (run(1000, waited_ms=3000), False),  # In time on a busy machine is in time.
        (run(1001), True),
        (run(1200), True),
        (run(1201, End.CPU), False),
        (run(1201, End.CPU, waited_ms=500), True),
        (run(1201, End.CPU, waited_ms=40), False),
        (run(5, End.WALL, wall_ms=3000), False),
        (run(5, End.WALL, wall_ms=3400, waited_ms=400), True),
        (run(5, End.BUSY, waited_ms=12_000), True),
        (run(5, End.MEMORY), False),
        (run(5, End.OUTPUT), False),
    ],
)
def test_which_runs_are_repeated(outcome, again):
    assert deserves_another_run(outcome, LIMITS) is again


@pytest.mark.parametrize(("waited_ms", "busy"), [(49, False), (50, True), (99, True), (0, False)])
def test_a_moments_wait_is_no_contention(waited_ms, busy):
    assert contended(run(300, waited_ms=waited_ms)) is busy
    assert not contended(run(10_000, waited_ms=waited_ms))


def test_the_best_run_counts():
    late, later, in_time = run(1100), run(1150), run(900)
    assert better(None, late, LIMITS) is late
    assert better(late, in_time, LIMITS) is in_time
    assert better(in_time, late, LIMITS) is in_time
    assert better(later, late, LIMITS) is late
    # One that was stopped waiting used little CPU time; that does not make it in time.
    asleep = run(5, End.WALL, wall_ms=3000)
    assert better(asleep, in_time, LIMITS) is in_time


@dataclasses.dataclass
class Runs:
    """A program whose runs end as they are told to."""

    outcomes: list[Outcome]
    place = None
    toolchain = None

    def run(self, *_):
        return self.outcomes.pop(0)


def judge(*outcomes: Outcome):
    runs = Runs(list(outcomes))
    case = Case(limits=TASK, stdin=b"", expected=b"", text_bytes_max=1)
    report = Submission(program=runs, doctor=None).run_case(case, lambda: False)
    assert runs.outcomes == []
    return report.status, report.runs, report.exec_time_ms


CLOSE, FAR, BUSY, GOOD = run(1100), run(1201, End.CPU), run(5, End.BUSY), run(990)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ((GOOD,), (Verdict.AC, 1, 990)),
        ((FAR,), (Verdict.TLE, 1, 1201)),
        ((CLOSE, GOOD), (Verdict.AC, 2, 990)),
        ((CLOSE, CLOSE, GOOD), (Verdict.AC, 3, 990)),
        ((CLOSE, run(1050), CLOSE), (Verdict.TLE, 3, 1050)),
        ((CLOSE, FAR), (Verdict.TLE, 2, 1100)),
        ((BUSY, GOOD), (Verdict.AC, 2, 990)),
        ((CLOSE, BUSY, BUSY), (Verdict.TLE, 3, 1100)),
    ],
)
def test_a_case_is_repeated_until_it_says_something(outcomes, verdict):
    assert judge(*outcomes) == verdict


def test_a_case_that_the_machine_is_too_busy_for_is_given_up():
    with pytest.raises(MachineFaultError, match="too busy") as caught:
        judge(*[BUSY] * BUSY_TRIES)
    assert not caught.value.unsound
    assert BUSY_TRIES < RUNS_MAX


class Delays:
    """Threads and how long each has waited, in milliseconds, as a test says."""

    def __init__(self) -> None:
        self.ms: dict[int, float] = {}
        self.books = RunDelay(lambda thread: int(self.ms[thread] * 1_000_000))

    def look(self, wall_ms: float, cpu_ms: float, **ms: float) -> int:
        self.ms = {int(name[1:]): value for name, value in ms.items()}
        self.books.look(self.ms, wall_ms=wall_ms, cpu_ms=cpu_ms)
        return self.books.waited_ms


def test_waiting_for_a_core_is_what_the_kernel_says():
    delays = Delays()
    assert delays.look(10, 4, t1=6) == 6
    assert delays.look(20, 8, t1=12) == 12
    # A wait is told when it is over: the time without a turn goes before.
    assert delays.look(30, 8, t1=12) == 12
    assert delays.look(40, 9, t1=31) == 31


def test_threads_that_wait_for_one_another_have_waited_for_nobody():
    delays = Delays()
    assert delays.look(100, 100, t1=50, t2=50, t3=90) == 0


def test_a_sleeper_cannot_have_its_sleep_counted_as_waiting():
    """It sleeps for long, then has threads wait for one another for a moment."""
    delays = Delays()
    assert delays.look(10_000, 0, t1=0) == 0
    assert delays.look(10_010, 10, t1=5000) == WAIT_MS_MAX
    delays = Delays()
    delays.look(10_000, 0, t1=0)
    assert delays.look(10_010, 10, t1=9, t2=9, t3=9) == 9


def test_a_thread_that_is_gone_is_no_trouble():
    def gone(thread: int) -> int:
        raise FileNotFoundError

    books = RunDelay(gone)
    books.look([1], wall_ms=10, cpu_ms=0)
    assert books.waited_ms == 0
