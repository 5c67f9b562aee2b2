"""What a killed runner leaves behind is ended.

Guarantees: as root, once the runner is gone, whatever its end was, every process of its slots'
users is killed within seconds. bubblewrap alone does not promise that: the process inside binds
itself to the one outside late, and does not look whether that one is still there. Without root
there is no user to tell the programs by; then only their limits end them.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from runner.isolation import Slot, processes

PATIENCE_S = 10.0
PAUSE_S = 0.02
ZOMBIE = "Z"


@contextmanager
def watched(slots: Sequence[Slot]) -> Iterator[None]:
    """Have a process of its own wait for the end of this one, and end the slots' programs then.

    It is forked, so no thread may run yet. It also keeps the users reserved until they are free.
    """
    users = {slot.uid for slot in slots if slot.uid is not None}
    if not users:
        yield
        return
    ended, alive = os.pipe()
    pid = os.fork()
    if pid == 0:
        _watch(ended, users, [slot.reservation.fileno() for slot in slots if slot.reservation])
    os.close(ended)
    try:
        yield
    finally:
        os.close(alive)
        os.waitpid(pid, 0)


def _watch(ended: int, users: Collection[int], kept: Sequence[int]) -> None:
    """Wait until nobody holds the other end; never returns."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        open_max = os.sysconf("SC_OPEN_MAX")
        bounds = [-1, *sorted({ended, *kept}), open_max]
        for below, above in itertools.pairwise(bounds):
            os.closerange(below + 1, above)
        os.read(ended, 1)
        end_all_of(users)
    finally:
        os._exit(0)


def end_all_of(users: Collection[int]) -> None:
    """Kill every process of these users, until there is none or `PATIENCE_S` have passed."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := _living(users)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)


def _living(users: Collection[int]) -> list[int]:
    found = []
    for folder, owner in processes():
        if owner in users:
            with suppress(OSError):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != ZOMBIE:
                    found.append(int(folder.name))
    return found
