"""One structured log line and one counter for all that happens to a job, and every recovery."""

from __future__ import annotations

from typing import Any

import structlog
from prometheus_client import Counter

log = structlog.get_logger("dispatch")

EVENTS = Counter(
    "dispatch_events_total",
    "Transitions of jobs, dropped results and recoveries, by name.",
    ["event"],
)


def count(event: str) -> None:
    """Count `event`, for what is logged elsewhere."""
    EVENTS.labels(event=event).inc()


def emit(event: str, **fields: Any) -> None:
    """Log `event` with `fields` and count it. Fields hold ids and numbers, never tokens."""
    count(event)
    log.info(event, **fields)
