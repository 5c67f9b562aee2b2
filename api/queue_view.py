"""The queue at a glance, as the API and the command line show it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dispatch import books
from dispatch.queue import Queue


def queue_view(queue: Queue, now: datetime) -> dict[str, Any]:
    """Return depth, the oldest waiting job's age in seconds, throughput, documents that cannot be
    read, and the pause."""
    oldest = queue.jobs.oldest_pending()
    paused = queue.control.paused()
    return {
        "depth": queue.jobs.depth(),
        "oldest_pending_age_s": (
            None if oldest is None else max(0.0, (now - oldest).total_seconds())
        ),
        "landed_per_min": {
            f"last_{minutes}_min": rate for minutes, rate in books.throughput(queue, now).items()
        },
        "unreadable": queue.jobs.unreadable.count(),
        "paused": paused and {"by": paused.by, "why": paused.why, "at": paused.at},
    }
