"""The queue and the runners as gauges, read from the database when Prometheus asks.

Guarantees: every process of every host tells the same; a database that is away is told as one
gauge, and takes no other metric with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pymongo.errors import PyMongoError

from api.queue_view import queue_view
from dispatch import books, checks, repair
from dispatch.queue import Queue
from dispatch.runner import Runner
from dispatch.states import OPEN


class Gauges(Collector):
    """How the queue stands, by the database server's clock."""

    def __init__(self, queue: Queue, now: Callable[[], datetime]) -> None:
        self._queue = queue
        self._now = now

    def collect(self) -> Iterable[Metric]:
        """Return what is known now."""
        try:
            known = list(self._read())
        except PyMongoError:
            known = []
        up = bool(known)
        return [
            GaugeMetricFamily("dispatch_database_up", "Whether the database answers.", value=up),
            *known,
        ]

    def _read(self) -> Iterable[Metric]:
        now = self._now()
        view = queue_view(self._queue, now)
        jobs = GaugeMetricFamily("dispatch_jobs", "Jobs that are not done.", labels=["state"])
        for state in sorted(state.value for state in OPEN):
            count = sum(group["count"] for group in view["depth"] if group["state"] == state)
            jobs.add_metric([state], count)
        yield jobs
        yield GaugeMetricFamily(
            "dispatch_oldest_pending_seconds",
            "How long the longest waiting job has been in line; 0: none waits.",
            value=view["oldest_pending_age_s"] or 0,
        )
        yield GaugeMetricFamily(
            "dispatch_longest_lease_seconds",
            "For how long the oldest lease in force has been held; 0: there is none.",
            value=view["longest_lease_s"] or 0,
        )
        yield GaugeMetricFamily(
            "dispatch_held_problems",
            "Problems whose jobs wait because runners cannot prepare them.",
            value=len(view["held_problems"]),
        )
        yield GaugeMetricFamily(
            "dispatch_paused", "Whether the queue is paused.", value=view["paused"] is not None
        )
        yield GaugeMetricFamily(
            "dispatch_unreadable",
            "Jobs and runners passed over because their documents cannot be read.",
            value=view["unreadable"],
        )
        yield GaugeMetricFamily(
            "dispatch_stranded",
            "Submissions that only a human can get to a verdict.",
            value=repair.count_given_up(self._queue),
        )
        runners = self._queue.runners.list(now=now)
        yield GaugeMetricFamily(
            "dispatch_runners_alive",
            "Runners seen lately.",
            value=sum(self._queue.runners.is_alive(runner, now=now) for runner in runners),
        )
        yield GaugeMetricFamily(
            "dispatch_runners_registered", "Runners in force.", value=len(runners)
        )
        yield from self._checks(runners, now)

    def _checks(self, runners: Sequence[Runner], now: datetime) -> Iterable[Metric]:
        alive = [one for one in runners if self._queue.runners.is_alive(one, now=now)]
        yield GaugeMetricFamily(
            "dispatch_runners_on_probation",
            "Runners seen lately that have to pass a check before they get all kinds of jobs.",
            value=sum(checks.on_probation(self._queue, one) for one in alive),
        )
        yield GaugeMetricFamily(
            "dispatch_runners_set_aside",
            "Runners that get no jobs until they are reinstated, for failures or a failed check.",
            value=sum(one.set_aside is not None for one in runners),
        )
        spent_ms = self._queue.checks.spent_since(now - books.LATELY)
        shares = [books.check_share(one, spent_ms, now) for one in alive]
        yield GaugeMetricFamily(
            "dispatch_check_share",
            "What part of the last hour runners spent at checks, on average.",
            value=sum(shares) / len(shares) if shares else 0,
        )
