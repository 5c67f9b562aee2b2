"""What a program may use, and what it used.

Guarantees: values only; every bound of a run is here and none is optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

KIB = 1 << 10
MIB = 1 << 20

# A program that waits is stopped after twice its time and a second; one that merely has to
# share the machine keeps a quarter of a core and gets up to four times its limit.
WALL_FACTOR = 2
WALL_EXTRA_MS = 1000
STARVED_SHARE = 4

# The tree includes what builds the isolation: about one MiB, kernel memory included.
OVERHEAD_KIB = 2 * KIB


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What the whole process tree of a run used so far. `memory_kib` is the peak."""

    cpu_ms: int
    memory_kib: int
    out_of_memory: bool


class End(Enum):
    """What ended a run."""

    EXITED = "exited"
    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    OUTPUT = "output"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended. `exit_code` is 128 + n for a program that signal n killed.

    `stdout` is whole where `end` is not OUTPUT; `stderr` is cut.
    """

    end: End
    exit_code: int
    stdout: bytes
    stderr: bytes
    wall_ms: int
    usage: Usage


def ended_by(limits: Limits, usage: Usage, wall_ms: int) -> End | None:
    """Say which limit a running program has broken, or `None`."""
    if over_memory(limits, usage):
        return End.MEMORY
    if usage.cpu_ms > limits.cpu_ms:
        return End.CPU
    if wall_ms > limits.wall_ms and usage.cpu_ms * STARVED_SHARE < wall_ms:
        return End.WALL
    return None


def over_memory(limits: Limits, usage: Usage) -> bool:
    """Tell whether a run needed, or asked the kernel for, more memory than it may have."""
    return usage.out_of_memory or usage.memory_kib > limits.memory_kib + OVERHEAD_KIB


def wall_limit_ms(cpu_ms: int) -> int:
    """Return the wall-clock bound that goes with a CPU limit."""
    return WALL_FACTOR * cpu_ms + WALL_EXTRA_MS
