"""Which core each slot has for itself.

Guarantees: no two slots of a runner share a core unless a setting says so, and no two runners of a
machine do while it has cores left. A runner that ends, however it does, gives its cores back.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import structlog

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cores:
    """The cores of a runner's slots, one each, and the hold on those that no other runner has."""

    of_slots: tuple[int, ...]
    _held: tuple[socket.socket, ...] = field(default=(), repr=False)

    def release(self) -> None:
        """Give the cores back."""
        for hold in self._held:
            hold.close()


def reserve_cores(jobs: int, *, share: bool) -> Cores:
    """Find a core for each of `jobs` slots, or, unless they may `share`, for as many as there are.

    A machine whose cores are all another runner's is shared, and that is said.
    """
    available = sorted(os.sched_getaffinity(0))
    count = slot_count(jobs, len(available), share=share)
    if count < jobs:
        _log.warning("fewer_slots_than_asked", asked=jobs, slots=count, cores=len(available))
    holds: dict[int, socket.socket] = {}
    for core in available:
        hold = _hold(core) if len(holds) < count else None
        if hold is not None:
            holds[core] = hold
    if len(holds) < min(count, len(available)):
        _log.warning("cores_shared_with_another_runner", own=len(holds), slots=count)
    return Cores(of_slots=assigned(count, list(holds), available), _held=tuple(holds.values()))


def slot_count(jobs: int, cores: int, *, share: bool) -> int:
    """Return how many slots there are for so many jobs on so many cores."""
    return jobs if share else min(jobs, cores)


def assigned(count: int, own: Sequence[int], available: Sequence[int]) -> tuple[int, ...]:
    """Give each of `count` slots a core: first our own, then the others, then all over again."""
    others = [core for core in available if core not in own]
    return tuple(islice(cycle([*own, *others]), count))


def _hold(core: int) -> socket.socket | None:
    """Take a core, unless another runner of this machine has it.

    An abstract socket's name is free again the moment its process is gone.
    """
    hold = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        hold.bind(f"\0runner-core-{core}")
    except OSError:
        hold.close()
        return None
    return hold
