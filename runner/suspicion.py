"""When an end may be the machine's doing rather than the program's.

Guarantees: pure. A suspicion is no finding: it is followed by an examination (`runner.doctor`) and
by another run. What a program can print or return may raise one, and never settles one.
"""

from __future__ import annotations

import re
import signal

from runner.limits import End, Limits, Outcome

SIGNAL_BASE = 128
# What a shell, or prlimit, ends with where it could not execute a program.
NOT_EXECUTABLE, NOT_FOUND = 126, 127
# Signals that no program earns by a mistake of its own. It may send them to itself.
FOREIGN_SIGNALS = (
    signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGBUS,
)  # fmt: skip
# What the system says of itself: ENOSPC, EDQUOT, EROFS, EIO, ENFILE, EMFILE, EAGAIN, ENOMEM,
# ENOEXEC, EACCES, ETXTBSY, a child that was killed, a compiler or a library that is not there.
SYSTEMS_WORDS = re.compile(
    rb"No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
    rb"|Too many open files|Resource temporarily unavailable|Cannot allocate memory"
    rb"|Exec format error|Permission denied|Text file busy|Killed|cannot execute|posix_spawn"
    rb"|terminated program|Bus error|cannot find -l|error while loading shared libraries"
    rb"|ModuleNotFoundError|ImportError|installation problem|Fatal Python error"
    rb"|Structure needs cleaning|Stale file handle"
)
COMPUTED_MS = 50


def compiler_suspicion(outcome: Outcome) -> str | None:
    """Say what makes a compiler's failure doubtful, or `None`. Its limits decide before this."""
    if outcome.not_executed is not None:
        return f"the compiler could not be executed: {outcome.not_executed}"
    if outcome.exit_code in (NOT_EXECUTABLE, NOT_FOUND):
        return f"the compiler could not be executed: exit code {outcome.exit_code}"
    foreign = _foreign_signal(outcome.exit_code)
    if foreign is not None:
        return f"the compiler was killed by {foreign}, which no limit had sent"
    if not outcome.stderr.strip():
        return f"the compiler failed with exit code {outcome.exit_code} and said nothing"
    found = SYSTEMS_WORDS.search(outcome.stderr)
    if found is not None:
        return f"the compiler said: {found.group().decode()}"
    return None


def run_suspicion(outcome: Outcome, limits: Limits) -> str | None:
    """Say what makes the end of a program's run doubtful, or `None`."""
    if outcome.usage.killed_for_machine:
        return "the program was killed because the machine ran out of memory"
    if outcome.not_executed is not None:
        return f"the program could not be executed: {outcome.not_executed}"
    if outcome.end is End.WALL and outcome.usage.cpu_ms < min(COMPUTED_MS, limits.cpu_ms):
        return "the program waited for ever"
    if outcome.end is not End.EXITED or outcome.usage.out_of_memory:
        return None
    if outcome.exit_code in (NOT_EXECUTABLE, NOT_FOUND):
        return f"the program could not be executed: exit code {outcome.exit_code}"
    foreign = _foreign_signal(outcome.exit_code)
    if foreign is not None and outcome.usage.cpu_ms <= limits.cpu_stop_ms:
        return f"the program was killed by {foreign}, which no limit had sent"
    if outcome.exit_code != 0 and (found := SYSTEMS_WORDS.search(outcome.stderr)) is not None:
        return f"the program said: {found.group().decode()}"
    return None


def killed_from_outside(outcome: Outcome) -> bool:
    """Tell whether a compiler was ended by somebody else, which no source can bring about."""
    return _foreign_signal(outcome.exit_code) is not None


def _foreign_signal(exit_code: int) -> str | None:
    for number in FOREIGN_SIGNALS:
        if exit_code == SIGNAL_BASE + number:
            return number.name
    return None
