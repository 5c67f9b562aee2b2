"""From how a run ended to its verdict.

Guarantees: pure. A limit that was broken decides before the exit code, the exit code before
the output.
"""

from __future__ import annotations

from typing import assert_never

from runner.compare import same_output
from runner.limits import End, Limits, Outcome, over_memory
from runner.wire import Verdict

# An allocation that was refused rather than killed: a request beyond all memory there is, or
# beyond what a process may map where no control group counts. A program that only pretends
# turns its RE into an MLE and gains nothing.
CPP_ALLOCATION_FAILED = b"std::bad_alloc"
PYTHON_ALLOCATION_FAILED = b"MemoryError"


def verdict_of(outcome: Outcome, limits: Limits, expected: bytes) -> Verdict:
    """Judge one ended run against the expected output. Raises ValueError for End.BUSY."""
    match outcome.end:
        case End.OUTPUT:
            return Verdict.OLE
        case End.CPU | End.WALL:
            return Verdict.TLE
        case End.MEMORY:
            return Verdict.MLE
        case End.BUSY:
            raise ValueError("a run that was given up for a busy machine has no verdict")
        case End.EXITED:
            return _verdict_of_exited(outcome, limits, expected)
        case _:
            assert_never(outcome.end)


def _verdict_of_exited(outcome: Outcome, limits: Limits, expected: bytes) -> Verdict:
    if over_memory(limits, outcome.usage):
        return Verdict.MLE
    if outcome.usage.cpu_ms > limits.cpu_ms:
        return Verdict.TLE
    if outcome.exit_code != 0:
        return Verdict.MLE if _allocation_failed(outcome.stderr) else Verdict.RE
    return Verdict.AC if same_output(outcome.stdout, expected) else Verdict.WA


def _allocation_failed(stderr: bytes) -> bool:
    last_line = stderr.rstrip().rpartition(b"\n")[2]
    return CPP_ALLOCATION_FAILED in stderr or last_line.startswith(PYTHON_ALLOCATION_FAILED)
