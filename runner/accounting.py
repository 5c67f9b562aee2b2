"""Who watches what a run uses: control groups where the kernel lets us, else /proc.

Guarantees: both ways count the whole process tree. Control groups are exact and enforced by
the kernel; reading /proc is a sample, so a program may overshoot between two looks, which the
address-space limit of each process then bounds.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from runner.limits import KIB, Usage

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // KIB
TREE_SIZE_MAX = 4096
# Fields of /proc/<pid>/stat after the name, which may itself hold blanks and parentheses.
# Times include those of children that have ended and were waited for.
TIMES = slice(11, 15)
RSS = 21


class Account(Protocol):
    """The books of one run."""

    @property
    def entry_files(self) -> tuple[Path, ...]:
        """Files into which the program's first process writes 0 to be counted."""

    @property
    def enforces_memory(self) -> bool:
        """Whether the kernel holds the whole tree to the memory limit."""

    def sample(self, root_pid: int) -> Usage:
        """Return the usage so far, while the program runs."""

    def settle(self, told: resource.struct_rusage, inside: resource.struct_rusage | None) -> Usage:
        """Return the usage of the ended run; `told` is what wait() said of its first process, and
        `inside` what it said of the tree inside the walls, where there are any."""

    def threads(self, root_pid: int) -> list[int]:
        """Return the ids of the tree's living threads, at most `TREE_SIZE_MAX` or so."""

    def kill_all(self) -> None:
        """Kill whatever of the tree is left."""

    def close(self) -> None:
        """Give back what the books hold."""


class ProcAccount:
    """Books kept by looking into /proc. They neither enforce nor kill anything."""

    entry_files: tuple[Path, ...] = ()
    enforces_memory = False

    def __init__(self, *, walls: int = 0) -> None:
        """`walls` processes, each the parent of the next, are above the program's first."""
        self._walls = walls
        self._peak_kib = 0
        self._cpu_ms = 0

    def sample(self, root_pid: int) -> Usage:
        """Sum what the living descendants of `root_pid` use, and the most one of them ever had."""
        cpu_ticks = pages = 0
        for number, pid in enumerate(_tree(root_pid)):
            # A process may end between being listed and being read.
            with suppress(OSError, IndexError, ValueError):
                fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
                cpu_ticks += sum(map(int, fields[TIMES]))
                if number >= self._walls:
                    pages += int(fields[RSS])
                    self._peak_kib = max(self._peak_kib, _peak_kib(pid))
        self._peak_kib = max(self._peak_kib, pages * PAGE_KIB)
        self._cpu_ms = max(self._cpu_ms, cpu_ticks * 1000 // TICKS_PER_S)
        return self._usage()

    def settle(self, told: resource.struct_rusage, inside: resource.struct_rusage | None) -> Usage:
        """Combine the peak that was seen with what wait() said.

        Its peak covers a spike between two looks, but that of the first process starts from our
        own size, which that one had before it became another program.
        """
        if told.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
            self._peak_kib = max(self._peak_kib, told.ru_maxrss)
        cpu_s = told.ru_utime + told.ru_stime
        if inside is not None:
            self._peak_kib = max(self._peak_kib, inside.ru_maxrss)
            cpu_s += inside.ru_utime + inside.ru_stime
        self._cpu_ms = max(self._cpu_ms, int(cpu_s * 1000))
        return self._usage()

    def threads(self, root_pid: int) -> list[int]:
        """Return the ids of the tree's living threads."""
        return [thread for pid in _tree(root_pid) for thread in _threads(pid)]

    def kill_all(self) -> None:
        """Do nothing: the pid namespace, or the process group, ends the rest."""

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def _usage(self) -> Usage:
        return Usage(cpu_ms=self._cpu_ms, memory_kib=self._peak_kib, out_of_memory=False)


def _peak_kib(pid: int) -> int:
    """Return the most memory that a process has had since it became what it is. Raises OSError."""
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def _tree(root_pid: int) -> list[int]:
    """Return `root_pid` and its descendants, at most `TREE_SIZE_MAX`."""
    found = [root_pid]
    for pid in found:
        if len(found) > TREE_SIZE_MAX:
            break
        for thread in _threads(pid):
            with suppress(OSError):
                children = PROC / str(pid) / "task" / str(thread) / "children"
                found += map(int, children.read_text().split())
    return found


def _threads(pid: int) -> list[int]:
    """Return the ids of a process's threads; none where it is gone."""
    try:
        return [int(name) for name in os.listdir(PROC / str(pid) / "task")]
    except OSError:
        return []
