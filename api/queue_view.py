"""The queue at a glance, as the API and the command line show it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dispatch import books
from dispatch.queue import Queue


def queue_view(queue: Queue, now: datetime) -> dict[str, Any]:
    """Return depth, ages in seconds, throughput, what cannot be read, what is held or paused."""
    oldest, longest = queue.jobs.oldest_pending(), queue.jobs.longest_lease_since(now)
    switches = queue.control.read()
    paused = switches.paused
    return {
        "depth": queue.jobs.depth(),
        "oldest_pending_age_s": _age_s(oldest, now),
        "longest_lease_s": _age_s(longest, now),
        "landed_per_min": {
            f"last_{minutes}_min": rate for minutes, rate in books.throughput(queue, now).items()
        },
        "unreadable": queue.jobs.unreadable.count(),
        "held_problems": [
            {
                "problem_id": held.problem_id,
                "since": held.since,
                "why": held.why,
                "probe_at": held.probe_at,
            }
            for held in switches.held_problems.values()
        ],
        "paused": paused and {"by": paused.by, "why": paused.why, "at": paused.at},
    }


def _age_s(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0.0, (now - since).total_seconds())
