"""A runner that crashed and came back: what its last identity held is free at once.

Guarantees: I2. The deadline still decides; it is moved, for the one who proves by its token that it
was that runner, and only to an earlier moment. A landing under way is left to end.
"""

from __future__ import annotations

from dispatch.clock import Clock
from dispatch.events import emit
from dispatch.queue import Queue


def replace_runner(queue: Queue, runner_id: str, token: str, *, now: Clock) -> bool:
    """End the leases of `runner_id` and revoke it; tell whether `token` is its own.

    In this order, so that what died in between can be asked for again.
    """
    if queue.runners.verify(runner_id, token, now=now()) is None:
        return False
    ended = queue.jobs.end_leases(runner_id, now())
    queue.runners.revoke(runner_id, now=now())
    emit("runner_replaced", runner_id=runner_id, leases_ended=ended)
    return True
