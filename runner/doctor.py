"""Is the machine sound? Asked whenever a program's failure may be the machine's.

Guarantees: the answer rests on known programs, compiled and run in the same place by the same
means as those of students, and on what the kernel says; never on what a submission printed. A
finding is raised as MachineFaultError, unsound.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.canaries import ANSWER, CASES, SOUND, Case, canary, quick_canary
from runner.faults import MachineFaultError
from runner.isolation import IsolationError, Slot
from runner.languages import Toolchain
from runner.limits import End, Outcome
from runner.machine import folder_trouble, memory_trouble
from runner.place import ShouldStop
from runner.program import COMPILE_LIMITS, Program, Programs, run_limits
from runner.verdict import verdict_of
from runner.wire import TaskLimits

TEXT_BYTES_MAX = 200
SAYS_NOTHING = ("", "compilation terminated.")
# What a canary needs, not what its limits would let it use.
MEMORY_KIB_MIN = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Doctor:
    """Examines this machine. Everything raises MachineFaultError and JobStoppedError."""

    programs: Programs

    def examine_compiler(
        self, toolchain: Toolchain, slot: Slot, text: bytes, should_stop: ShouldStop
    ) -> None:
        """Have a known program compiled; `text` is what the compiler said of another."""
        self._examine(quick_canary(toolchain.source_name, text), slot, (), should_stop)

    def examine_runs(self, toolchain: Toolchain, slot: Slot, should_stop: ShouldStop) -> None:
        """Have a known program compiled and run."""
        self._examine(canary(toolchain.source_name), slot, (SOUND,), should_stop)

    def examine_all(self, toolchain: Toolchain, slot: Slot, should_stop: ShouldStop) -> None:
        """Have a known program make every verdict that a machine can spoil."""
        self._examine(canary(toolchain.source_name), slot, CASES, should_stop)

    def _examine(
        self,
        known: tuple[Toolchain, bytes],
        slot: Slot,
        cases: tuple[Case, ...],
        should_stop: ShouldStop,
    ) -> None:
        trouble = folder_trouble(self.programs.work_root.folder) or memory_trouble(MEMORY_KIB_MIN)
        if trouble is not None:
            raise MachineFaultError(trouble, unsound=True)
        toolchain, source = known
        try:
            with self.programs.open(toolchain, source, slot) as program:
                _compile(program, should_stop)
                for case in cases:
                    _run(program, case, should_stop)
        except (IsolationError, OSError) as error:
            reason = f"a known {toolchain.source_name} cannot be judged: {error}"
            raise MachineFaultError(reason, unsound=True) from error


def _compile(program: Program, should_stop: ShouldStop) -> None:
    outcome = program.compile(COMPILE_LIMITS, should_stop)
    if outcome.end is End.EXITED and outcome.exit_code == 0 and program.has_binary():
        return
    name = program.toolchain.source_name
    raise MachineFaultError(f"a known {name} does not compile here: {_how(outcome)}", unsound=True)


def _run(program: Program, case: Case, should_stop: ShouldStop) -> None:
    name = program.toolchain.source_name
    task = TaskLimits(
        taskScore=0, memoryLimit=case.memory_mib * 1024, timeLimit=case.time_ms, caseCount=1
    )
    limits = run_limits(task, len(ANSWER))
    outcome = program.run(limits, case.stdin, should_stop)
    if outcome.end is End.BUSY:
        # Nothing is wrong with a machine that only has too much to do: it is asked again.
        raise MachineFaultError(f"the machine is too busy to run a known {name}")
    if outcome.not_executed is not None:
        raise MachineFaultError(
            f"a known {name} cannot be executed here: {outcome.not_executed}", unsound=True
        )
    got = verdict_of(outcome, limits, ANSWER)
    if got is not case.verdict:
        raise MachineFaultError(
            f"a known {name} that is {case.verdict.value} came out as {got.value} here: "
            f"{_how(outcome)}",
            unsound=True,
        )


def _how(outcome: Outcome) -> str:
    """Say how a known program, or its compiler, ended. Nothing of a submission is in it."""
    text = outcome.stderr.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() not in SAYS_NOTHING]
    said = lines[-1][:TEXT_BYTES_MAX] if lines else "it said nothing"
    if outcome.not_executed is not None:
        return f"it cannot be executed: {outcome.not_executed}"
    if outcome.usage.killed_for_machine:
        return "the kernel killed it because the machine ran out of memory"
    return f"{outcome.end.value}, exit code {outcome.exit_code}, {said}"
