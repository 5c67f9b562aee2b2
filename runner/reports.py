"""What is reported of a program: its verdicts, its numbers, as much of its text as fits.

Guarantees: pure. A report of any number of cases fits into one request; the time shown is CPU
time and the memory shown is the peak, whatever ended the run.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import chain, repeat

from runner.limits import KIB, MIB, Limits, Outcome
from runner.verdict import verdict_of
from runner.wire import CaseReport, TaskLimits, Verdict

STREAM_BYTES_REPORTED = 64 * KIB
# A report of many cases keeps less of each, so that it always fits into one request.
REPORT_BYTES_MAX = 4 * MIB


def case_report(
    outcome: Outcome, limits: Limits, expected: bytes, bytes_max: int, runs: int
) -> CaseReport:
    """Report a case by the run that counts, the best of `runs`."""
    return CaseReport(
        status=verdict_of(outcome, limits, expected),
        exit_code=outcome.exit_code,
        stdout=reported_text(outcome.stdout, bytes_max),
        stderr=reported_text(outcome.stderr, bytes_max),
        exec_time_ms=outcome.usage.cpu_ms,
        memory_kib=outcome.usage.memory_kib,
        output_truncated=_is_cut(bytes_max, outcome.stdout, outcome.stderr),
        runs=runs,
    )


def compile_error_report(message: bytes, tasks: Sequence[TaskLimits]) -> list[list[CaseReport]]:
    """Report CE for every case; the first one carries the compiler's text."""
    text = reported_text(message, STREAM_BYTES_REPORTED)
    first = _unrun_case(text, output_truncated=_is_cut(STREAM_BYTES_REPORTED, message))
    reports = chain([first], repeat(_unrun_case("")))
    return [[next(reports) for _ in range(limits.case_count)] for limits in tasks]


def reported_text(data: bytes, bytes_max: int) -> str:
    """Return at most `bytes_max` bytes as text, bad ones replaced, no character cut in half."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data[:bytes_max], final=len(data) <= bytes_max)


def text_bytes_max(tasks: Sequence[TaskLimits]) -> int:
    """Return how much of each stream of a case fits into a report."""
    streams = 2 * max(1, sum(limits.case_count for limits in tasks))
    return min(STREAM_BYTES_REPORTED, REPORT_BYTES_MAX // streams)


def _is_cut(bytes_max: int, *streams: bytes) -> bool:
    return any(len(stream) > bytes_max for stream in streams)


def _unrun_case(stderr: str, *, output_truncated: bool = False) -> CaseReport:
    return CaseReport(
        status=Verdict.CE,
        exit_code=-1,
        stdout="",
        stderr=stderr,
        exec_time_ms=0,
        memory_kib=0,
        output_truncated=output_truncated,
    )
