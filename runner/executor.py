"""Compiles a program once, runs it on every case, and says what that makes of it.

Guarantees: nothing of a submission runs outside the isolation, its compiler included; a
program never gets more than the input of the case at hand, so the expected output is not
there to be found; what a machine did is no verdict: it is raised as MachineFaultError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import structlog

from runner.cgroup import Hierarchy
from runner.doctor import Doctor
from runner.faults import MachineFaultError
from runner.isolation import Isolation, IsolationError, Slot
from runner.languages import Toolchain
from runner.limits import KIB, MIB, End, Limits, Outcome
from runner.place import Place, ShouldStop
from runner.program import BINARY_BYTES_MAX, COMPILE_LIMITS, Program, Programs, run_limits
from runner.reports import case_report, text_bytes_max
from runner.suspicion import SIGNAL_BASE, compiler_suspicion, killed_from_outside, run_suspicion
from runner.testdata import TestData
from runner.timing import RUNS_MAX, better, deserves_another_run
from runner.wire import CaseReport, TaskLimits
from runner.workspace import WorkRoot

COMPILE_TRIES = 2
CASE_TRIES = 2
BUSY_TRIES = 2
# So often a program may make the runner look at its machine: one that ends oddly, on a sound
# machine and again, does so by itself.
DOUBTS_MAX = 3

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
        self._programs = Programs(isolation=isolation, work_root=work_root, hierarchy=hierarchy)
        self.doctor = Doctor(programs=self._programs)

    @contextmanager
    def open_job(self, toolchain: Toolchain, source: bytes, slot: Slot) -> Iterator[Submission]:
        """Give a program a folder of its own, removed at the end. Raises MachineFaultError."""
        with ExitStack() as stack:
            try:
                program = stack.enter_context(self._programs.open(toolchain, source, slot))
            except OSError as error:
                reason = f"the work folder cannot be used: {error.strerror}"
                raise MachineFaultError(reason, unsound=True) from error
            yield Submission(program=program, doctor=self.doctor)

    def check(self, slot: Slot) -> None:
        """Run a program that does nothing. Raises IsolationError, saying why it cannot run."""
        with self._programs.place(slot) as place:
            outcome = place.run(
                ["true"],
                limits=COMPILE_LIMITS,
                stdin=b"",
                compiling=False,
                should_stop=lambda: False,
            )
        if outcome.exit_code != 0:
            text = outcome.not_executed or outcome.stderr.decode("utf-8", "replace").strip()
            raise IsolationError(text or f"a test run ended with {outcome.exit_code}")


@dataclass(kw_only=True, slots=True)
class Submission:
    """One submission's program, judged with the machine's condition in mind."""

    program: Program
    doctor: Doctor
    _doubts_left: int = field(default=DOUBTS_MAX, init=False)

    @property
    def place(self) -> Place:
        """Where it runs."""
        return self.program.place

    def compile(self, should_stop: ShouldStop) -> CompileError | None:
        """Compile, or only check, the source. Raises MachineFaultError and JobStoppedError.

        An error is the program's only if a known program compiles after it.
        """
        tries_left = COMPILE_TRIES
        while True:
            tries_left -= 1
            outcome = self._run(lambda: self.program.compile(COMPILE_LIMITS, should_stop))
            if outcome.end is End.BUSY:
                raise MachineFaultError("the machine is too busy to compile")
            broken = _broken_limit(outcome)
            has_binary = self._has_binary()
            if broken is None and outcome.exit_code == 0 and has_binary:
                return None
            self.doctor.examine_compiler(
                self.program.toolchain, self.place.slot, outcome.stderr, should_stop
            )
            if broken is not None:
                return _compile_error(outcome, broken)
            if outcome.exit_code == 0:
                note = f"compiling gave no program of at most {BINARY_BYTES_MAX // MIB} MiB"
                return _compile_error(outcome, note)
            doubt = compiler_suspicion(outcome)
            if doubt is None:
                return _compile_error(outcome, None)
            _log.warning("compiler_doubted", doubt=doubt, tries_left=tries_left)
            if not tries_left:
                if _is_no_compile_error(outcome):
                    raise MachineFaultError(doubt)
                return _compile_error(outcome, None)

    def run_case(self, case: Case, should_stop: ShouldStop) -> CaseReport:
        """Run one case. Raises MachineFaultError and JobStoppedError."""
        limits = run_limits(case.limits, len(case.expected))
        best: Outcome | None = None
        runs = 0
        for runs in range(1, RUNS_MAX + 1):
            outcome = self._doubting_run(limits, case.stdin, should_stop)
            if outcome.end is not End.BUSY:
                best = better(best, outcome, limits)
            elif best is None and runs >= BUSY_TRIES:
                raise MachineFaultError(
                    f"the machine is too busy: a case waited {outcome.waited_ms} ms for a core"
                )
            if not deserves_another_run(outcome, limits):
                break
            _log.info("case_timed_again", cpu_ms=outcome.usage.cpu_ms, waited_ms=outcome.waited_ms)
        if best is None:
            raise RuntimeError("no run and no fault")
        return case_report(best, limits, case.expected, case.text_bytes_max, runs)

    def _doubting_run(self, limits: Limits, stdin: bytes, should_stop: ShouldStop) -> Outcome:
        """Run once, or twice where the first end may be the machine's doing."""

        def run_once() -> Outcome:
            return self._run(lambda: self.program.run(limits, stdin, should_stop))

        outcome = run_once()
        doubt = run_suspicion(outcome, limits)
        if doubt is None or not (self._doubts_left or outcome.usage.killed_for_machine):
            return outcome
        _log.warning("run_doubted", doubt=doubt)
        self.doctor.examine_runs(self.program.toolchain, self.place.slot, should_stop)
        outcome = run_once()
        doubt = run_suspicion(outcome, limits)
        if doubt is None:
            return outcome
        if outcome.usage.killed_for_machine or not self._has_binary():
            raise MachineFaultError(doubt)
        # The machine is sound and the program does it again: it is the program's own doing.
        self._doubts_left -= 1
        return outcome

    def _run(self, call: Callable[[], Outcome]) -> Outcome:
        """Run something, again where the walls did not stand. Raises MachineFaultError."""
        for tries_left in reversed(range(CASE_TRIES)):
            try:
                return call()
            except (IsolationError, OSError) as error:
                _log.error("not_run", error=str(error))
                if not tries_left:
                    reason = f"nothing can be run here: {error}"
                    raise MachineFaultError(reason, unsound=True) from error
        raise RuntimeError("no run and no fault")

    def _has_binary(self) -> bool:
        try:
            return self.program.has_binary()
        except OSError as error:
            raise MachineFaultError(f"the work folder cannot be read: {error.strerror}") from error


def judge_cases(
    program: Submission, tasks: Sequence[TaskLimits], data: TestData, should_stop: ShouldStop
) -> list[list[CaseReport]]:
    """Run every case of every task.

    Raises MachineFaultError, JobStoppedError and TestDataError.
    """
    bytes_max = text_bytes_max(tasks)
    return [
        [
            program.run_case(
                Case(
                    limits=limits,
                    stdin=data.input(task, case),
                    expected=data.expected(task, case),
                    text_bytes_max=bytes_max,
                ),
                should_stop,
            )
            for case in range(limits.case_count)
        ]
        for task, limits in enumerate(tasks)
    ]


def _is_no_compile_error(outcome: Outcome) -> bool:
    """Tell whether a compiler's end is one that no source brings about."""
    return (
        outcome.usage.killed_for_machine
        or outcome.not_executed is not None
        or killed_from_outside(outcome)
        # One that crashed on a source, alike each time, has no words either.
        or (not outcome.stderr.strip() and outcome.exit_code < SIGNAL_BASE)
    )


def _compile_error(outcome: Outcome, note: str | None) -> CompileError:
    # The note comes first: a long text is cut at its end.
    parts = [b"" if note is None else note.encode(), outcome.stderr.rstrip()]
    return CompileError(message=b"\n".join(filter(None, parts)))


def _broken_limit(outcome: Outcome) -> str | None:
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
