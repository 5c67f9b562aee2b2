"""The gauges of /metrics: what they say of the queue, and what of a database that is away."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pymongo.errors import AutoReconnect

from tests.factories import Service

OF_THE_PROCESS = ("python", "process", "dispatch_events")


def gauges(service: Service) -> dict[str, float]:
    text = service.call("GET", "/metrics", key=None).text
    return {
        sample.name + "".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        # A counter that another test in this process has moved tells when it was created.
        if family.type == "gauge"
        and not family.name.startswith(OF_THE_PROCESS)
        and not family.name.endswith("_created")
    }


def test_the_gauges_follow_the_queue(service: Service) -> None:
    nothing = {
        "dispatch_database_up": 1,
        "dispatch_jobspending": 0,
        "dispatch_jobsleased": 0,
        "dispatch_jobslanding": 0,
        "dispatch_oldest_pending_seconds": 0,
        "dispatch_longest_lease_seconds": 0,
        "dispatch_held_problems": 0,
        "dispatch_paused": 0,
        "dispatch_stranded": 0,
        "dispatch_runners_alive": 0,
        "dispatch_unreadable": 0,
        "dispatch_runners_registered": 0,
        "dispatch_runners_on_probation": 0,
        "dispatch_runners_set_aside": 0,
        "dispatch_check_share": 0,
    }
    assert gauges(service) == nothing
    service.user("ada")
    service.problem(1)
    service.runner("silent")
    service.clock.advance(3600)
    runner = service.runner()
    for _ in range(3):
        service.submit("ada", 1)
    service.claim(runner)
    service.clock.advance(12)
    service.ok("POST", "/queue/pause", json={"why": "x"})
    service.database["jobs"].update_one(
        {"state": "pending"}, {"$set": {"given_up_at": service.clock()}}
    )
    assert gauges(service) == nothing | {
        "dispatch_jobspending": 2,
        "dispatch_jobsleased": 1,
        "dispatch_oldest_pending_seconds": 12,
        "dispatch_longest_lease_seconds": 12,
        "dispatch_paused": 1,
        "dispatch_stranded": 1,
        "dispatch_runners_alive": 1,
        "dispatch_runners_registered": 2,
    }


def test_a_database_that_is_away_is_told(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Any:
        raise AutoReconnect("no primary")

    monkeypatch.setattr(service.services.queue.jobs, "depth", away)
    assert gauges(service) == {"dispatch_database_up": 0}
    text = service.call("GET", "/metrics", key=None).text
    assert "dispatch_events_total" in text
