"""Child processes that do not outlive their parent.

Guarantees, on Linux: a child for which `die_with_parent` ran gets its signal as soon as the
thread that forked it ends, however that happens, SIGKILL included. Start such children from a
thread that lives as long as they must (the main one). Elsewhere than on Linux it does nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
# Loaded here, not in the forked child: between fork and exec nothing may take a lock.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(signal_number: int, parent_pid: int) -> None:
    """Have the kernel send this process `signal_number` when its parent dies.

    Call it in the child. A parent (`parent_pid`) that died before the call is noticed too: the
    signal is then raised at once.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal_number)


def dying_with_parent(signal_number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """A `preexec_fn` for `subprocess.Popen` that ties the child to the calling process."""
    parent_pid = os.getpid()

    def tie() -> None:
        die_with_parent(signal_number, parent_pid)

    return tie
