"""One structured log line and one counter for everything that happens to a job."""

from __future__ import annotations

from typing import Any

import structlog
from prometheus_client import Counter

log = structlog.get_logger("dispatch")

EVENTS = Counter(
    "dispatch_events_total",
    "Transitions of jobs and dropped results, by name.",
    ["event"],
)


def emit(event: str, **fields: Any) -> None:
    """Log `event` with `fields` and count it. Fields hold ids and numbers, never tokens."""
    EVENTS.labels(event=event).inc()
    log.info(event, **fields)
