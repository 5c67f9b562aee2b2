"""What a program may use, and what it used.

Guarantees: values only; every bound of a run is here and none is optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

KIB = 1 << 10
MIB = 1 << 20

# A program that waits for nothing but itself is stopped after twice its time and a second. Time in
# which it waited for a core does not count. Where that is not known, one that merely has to share
# the machine keeps a quarter of a core and gets up to four times its limit.
WALL_FACTOR = 2
WALL_EXTRA_MS = 1000
STARVED_SHARE = 4
# Beyond so many times its wall limit a run says nothing any more: the machine is too busy.
BUSY_FACTOR = 4
# A program is let run on to this share above its CPU limit, since one that is done by then may
# owe its excess to the machine and gets another run.
CLOSE_PERCENT = 20

# Where a control group counts, what builds the walls counts too: never less than this, kernel
# memory included, so that much is no program's; and at most twice that, so the group may hold it.
WALLS_KIB = 1 * KIB
GROUP_EXTRA_KIB = 2 * KIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The bounds of one run."""

    cpu_ms: int
    wall_ms: int
    memory_kib: int
    output_bytes_max: int
    file_bytes_max: int
    scratch_bytes_max: int
    processes_max: int = 64
    files_open_max: int = 256

    @property
    def cpu_stop_ms(self) -> int:
        """The CPU time at which a run is ended, a little above the limit."""
        return self.cpu_ms + self.cpu_ms * CLOSE_PERCENT // 100

    @property
    def busy_ms(self) -> int:
        """The time after which a run that waits for a core is given up."""
        return self.wall_ms * BUSY_FACTOR


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What the whole process tree of a run used so far. `memory_kib` is the peak.

    `out_of_memory`: the kernel ended a process because the run's own limit was reached.
    `killed_for_machine`: it ended one because the machine, or whoever holds the runner, had none.
    """

    cpu_ms: int
    memory_kib: int
    out_of_memory: bool
    killed_for_machine: bool = False


class End(Enum):
    """What ended a run."""

    EXITED = "exited"
    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    OUTPUT = "output"
    # No limit was broken: the machine was too busy to tell.
    BUSY = "busy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended. `exit_code` is 128 + n for a program that signal n killed.

    `stdout` is whole where `end` is not OUTPUT; `stderr` is cut. `waited_ms` is the part of
    `wall_ms` in which the program waited for a core. `not_executed` says why the program's file
    could not be executed, where that is known: then nothing of it ran.
    """

    end: End
    exit_code: int
    stdout: bytes
    stderr: bytes
    wall_ms: int
    usage: Usage
    waited_ms: int = 0
    not_executed: str | None = None


def ended_by(limits: Limits, usage: Usage, wall_ms: int, waited_ms: int) -> End | None:
    """Say what ends a running program, or `None`."""
    if over_memory(limits, usage):
        return End.MEMORY
    if usage.cpu_ms > limits.cpu_stop_ms:
        return End.CPU
    own_ms = wall_ms - waited_ms
    if own_ms > limits.wall_ms and usage.cpu_ms * STARVED_SHARE < own_ms:
        return End.WALL
    if wall_ms > limits.busy_ms:
        return End.BUSY
    return None


def over_memory(limits: Limits, usage: Usage) -> bool:
    """Tell whether a run needed, or asked the kernel for, more memory than it may have."""
    return usage.out_of_memory or usage.memory_kib > limits.memory_kib


def wall_limit_ms(cpu_ms: int) -> int:
    """Return the wall-clock bound that goes with a CPU limit."""
    return WALL_FACTOR * cpu_ms + WALL_EXTRA_MS
