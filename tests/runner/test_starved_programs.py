"""Programs on a core that others keep busy: what they use is theirs, what they wait for is not.

STARVATION_RUNS=30 runs the long form.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from runner.languages import TOOLCHAINS
from runner.program import run_limits
from runner.wire import Verdict
from tests.runner.support import C, limits

RUNS = int(os.environ.get("STARVATION_RUNS", "2"))
LOOPS = 4
LIMIT_MS = 300


def uses_percent(percent: int) -> str:
    """A program that uses that much of its limit, whoever else computes."""
    ms = LIMIT_MS * percent // 100
    return f"#include <time.h>\nint main(void){{while(clock()<CLOCKS_PER_SEC/1000*{ms});}}"


@pytest.fixture
def starved(bench) -> Iterator:
    """A bench whose slot has a core that others keep busy."""
    core = min(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(LOOPS)]
    yield replace(bench, slot=replace(bench.slot, core=core))
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.timeout(60 * RUNS + 120)
def test_a_program_within_its_time_is_in_time_however_long_it_waits(starved):
    reports = [starved.one(C, uses_percent(80), time_ms=LIMIT_MS) for _ in range(RUNS)]
    assert [report.status for report in reports] == [Verdict.AC] * RUNS
    assert all(report.exec_time_ms <= LIMIT_MS for report in reports)


@pytest.mark.timeout(60 * RUNS + 120)
def test_a_program_beyond_its_time_is_late_on_a_busy_core_too(starved):
    reports = [starved.one(C, uses_percent(140), time_ms=LIMIT_MS) for _ in range(RUNS)]
    assert [report.status for report in reports] == [Verdict.TLE] * RUNS
    # Late by more than a close call, so it is the contention that was the reason for more runs.
    assert all(report.exec_time_ms > LIMIT_MS * 6 // 5 for report in reports)


def test_waiting_for_a_core_is_measured(starved):
    """Without that a starved program would be taken for one that sleeps."""
    with starved.executor.open_job(TOOLCHAINS[C], uses_percent(80).encode(), starved.slot) as job:
        assert job.compile(lambda: False) is None
        bounds = run_limits(limits(time_ms=LIMIT_MS), 0)
        outcome = job.program.run(bounds, b"", lambda: False)
    # Its fair share may be up to a half: what a control group runs is weighed as one.
    assert outcome.waited_ms > outcome.usage.cpu_ms / 3
    assert outcome.waited_ms + outcome.usage.cpu_ms <= outcome.wall_ms + 20
