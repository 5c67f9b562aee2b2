"""Compiles a program once and runs it on every case.

Guarantees: nothing of a submission runs outside the isolation, its compiler included; a
program never gets more than the input of the case at hand, so the expected output is not
there to be found; JE stands only for the runner's own failure at a case.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, repeat

import structlog

from runner.cgroup import Hierarchy
from runner.isolation import Isolation, IsolationError, Slot
from runner.languages import Toolchain
from runner.limits import KIB, MIB, End, Limits, Outcome, wall_limit_ms
from runner.place import Place, ShouldStop
from runner.testdata import TestData
from runner.verdict import exec_time_ms, verdict_of
from runner.wire import CaseReport, TaskLimits, Verdict
from runner.workspace import WorkRoot, Workspace

STREAM_BYTES_REPORTED = 64 * KIB
# A report of many cases keeps less of each, so that it always fits into one request.
REPORT_BYTES_MAX = 4 * MIB
OUTPUT_BYTES_MAX = 16 * MIB
SCRATCH_BYTES_MAX = 64 * MIB
BINARY_BYTES_MAX = 64 * MIB
CASE_TRIES = 2

COMPILE_LIMITS = Limits(
    cpu_ms=30_000,
    wall_ms=30_000,
    memory_kib=1024 * KIB,
    output_bytes_max=64 * MIB,
    file_bytes_max=128 * MIB,
    scratch_bytes_max=256 * MIB,
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileError:
    """The program does not compile; `message` is the compiler's text, or what stopped it."""

    message: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One case to run. `text_bytes_max` bounds each stream in the report."""

    limits: TaskLimits
    stdin: bytes
    expected: bytes
    text_bytes_max: int


class Executor:
    """Judges programs on this machine. `hierarchy` is where control groups are made, if any."""

    def __init__(
        self, *, isolation: Isolation, work_root: WorkRoot, hierarchy: Hierarchy | None
    ) -> None:
        self._isolation = isolation
        self._work_root = work_root
        self._hierarchy = hierarchy

    @contextmanager
    def open_job(self, toolchain: Toolchain, source: bytes, slot: Slot) -> Iterator[Program]:
        """Give a program a folder of its own, which is removed at the end."""
        with self._work_root.workspace(slot.uid) as workspace:
            path = workspace.sources / toolchain.source_name
            path.write_bytes(source)
            path.chmod(0o644)
            yield Program(toolchain=toolchain, place=self._place(workspace, slot))

    def check(self, slot: Slot) -> None:
        """Run a program that does nothing. Raises IsolationError, saying why it cannot run."""
        with self._work_root.workspace(slot.uid) as workspace:
            outcome = self._place(workspace, slot).run(
                ["true"],
                limits=COMPILE_LIMITS,
                stdin=b"",
                compiling=False,
                should_stop=lambda: False,
            )
        if outcome.exit_code != 0:
            text = outcome.stderr.decode("utf-8", "replace").strip()
            raise IsolationError(text or f"a test run ended with {outcome.exit_code}")

    def _place(self, workspace: Workspace, slot: Slot) -> Place:
        return Place(
            workspace=workspace,
            slot=slot,
            isolation=self._isolation,
            hierarchy=self._hierarchy,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One submission's program in its folder."""

    toolchain: Toolchain
    place: Place

    def compile(self, should_stop: ShouldStop) -> CompileError | None:
        """Compile, or only check, the source. Raises IsolationError and JobStoppedError."""
        outcome = self.place.run(
            self.toolchain.compile_argv(self.place.root),
            limits=COMPILE_LIMITS,
            stdin=b"",
            compiling=True,
            should_stop=should_stop,
        )
        note = _why_compiling_ended(outcome)
        if note is None and outcome.exit_code == 0:
            if self._has_binary():
                return None
            note = f"compiling gave no program of at most {BINARY_BYTES_MAX // MIB} MiB"
        # The note comes first: a long text is cut at its end.
        parts = [b"" if note is None else note.encode(), outcome.stderr.rstrip()]
        return CompileError(message=b"\n".join(filter(None, parts)))

    def run_case(self, case: Case, should_stop: ShouldStop) -> CaseReport:
        """Run one case. Raises JobStoppedError; any failure of our own is a JE."""
        limits = _run_limits(case)
        for _ in range(CASE_TRIES):
            try:
                outcome = self.place.run(
                    self.toolchain.run_argv(self.place.root),
                    limits=limits,
                    stdin=case.stdin,
                    compiling=False,
                    should_stop=should_stop,
                )
            except (IsolationError, OSError) as error:
                _log.error("case_not_run", error=str(error))
                continue
            return CaseReport(
                status=verdict_of(outcome, limits, case.expected),
                exit_code=outcome.exit_code,
                stdout=reported_text(outcome.stdout, case.text_bytes_max),
                stderr=reported_text(outcome.stderr, case.text_bytes_max),
                exec_time_ms=exec_time_ms(outcome),
                memory_kib=outcome.usage.memory_kib,
                output_truncated=_is_cut(case.text_bytes_max, outcome.stdout, outcome.stderr),
            )
        return _unrun_case(Verdict.JE, "the runner could not run the program")

    def _has_binary(self) -> bool:
        binary = self.place.workspace.binaries / "main"
        return not self.toolchain.makes_binary or (
            binary.is_file()
            and not binary.is_symlink()
            and binary.stat().st_size <= BINARY_BYTES_MAX
        )


def judge_cases(
    program: Program, tasks: Sequence[TaskLimits], data: TestData, should_stop: ShouldStop
) -> list[list[CaseReport]]:
    """Run every case of every task. Raises JobStoppedError and TestDataError."""
    text_bytes_max = _text_bytes_max(tasks)
    return [
        [
            program.run_case(
                Case(
                    limits=limits,
                    stdin=data.input(task, case),
                    expected=data.expected(task, case),
                    text_bytes_max=text_bytes_max,
                ),
                should_stop,
            )
            for case in range(limits.case_count)
        ]
        for task, limits in enumerate(tasks)
    ]


def compile_error_report(
    error: CompileError, tasks: Sequence[TaskLimits]
) -> list[list[CaseReport]]:
    """Report CE for every case; the first one carries the compiler's text."""
    first = replace(
        _unrun_case(Verdict.CE, reported_text(error.message, STREAM_BYTES_REPORTED)),
        output_truncated=_is_cut(STREAM_BYTES_REPORTED, error.message),
    )
    reports = chain([first], repeat(_unrun_case(Verdict.CE, "")))
    return [[next(reports) for _ in range(limits.case_count)] for limits in tasks]


def reported_text(data: bytes, bytes_max: int) -> str:
    """Return at most `bytes_max` bytes as text, bad ones replaced, no character cut in half."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data[:bytes_max], final=len(data) <= bytes_max)


def _is_cut(bytes_max: int, *streams: bytes) -> bool:
    return any(len(stream) > bytes_max for stream in streams)


def _run_limits(case: Case) -> Limits:
    return Limits(
        cpu_ms=case.limits.time_limit_ms,
        wall_ms=wall_limit_ms(case.limits.time_limit_ms),
        memory_kib=case.limits.memory_limit_kib,
        # A right answer must never be too long.
        output_bytes_max=max(OUTPUT_BYTES_MAX, 2 * len(case.expected)),
        file_bytes_max=SCRATCH_BYTES_MAX,
        scratch_bytes_max=SCRATCH_BYTES_MAX,
    )


def _text_bytes_max(tasks: Sequence[TaskLimits]) -> int:
    streams = 2 * max(1, sum(limits.case_count for limits in tasks))
    return min(STREAM_BYTES_REPORTED, REPORT_BYTES_MAX // streams)


def _why_compiling_ended(outcome: Outcome) -> str | None:
    """Say which limit ended the compiler, if one did."""
    seconds = COMPILE_LIMITS.cpu_ms // 1000
    reasons = {
        End.CPU: f"compiling took longer than {seconds} s",
        End.WALL: f"compiling took longer than {seconds} s",
        End.MEMORY: f"compiling needed more than {COMPILE_LIMITS.memory_kib // KIB} MiB",
        End.OUTPUT: "the compiler printed too much",
    }
    if outcome.usage.out_of_memory:
        return reasons[End.MEMORY]
    return reasons.get(outcome.end)


def _unrun_case(status: Verdict, stderr: str) -> CaseReport:
    return CaseReport(
        status=status, exit_code=-1, stdout="", stderr=stderr, exec_time_ms=0, memory_kib=0
    )
