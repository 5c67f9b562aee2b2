"""What checks cost a runner that is off probation: not one operation of the database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import MongoClient

from mongo import user
from mongo.embedded import EmbeddedMongo
from mongo.known_programs import known_programs
from tests.counting import Counter
from tests.factories import ADMIN_KEY, EPOCH, Runner, Service

EXPECTED = {program.program_id: program.expected.name for program in known_programs()}


def prove(service: Service, runner: Runner) -> None:
    while (payload := service.claim(runner)) is not None:
        record = service.services.queue.checks.recorded(payload["job_id"])
        assert record is not None
        service.complete(runner, payload["job_id"], EXPECTED[record.program_id])


def judging(
    mongod: EmbeddedMongo, raw: MongoClient[dict[str, Any]], checks: str
) -> dict[str, list[str]]:
    """What each call of one job sends to the database, with a verdict that is no compile error."""
    sent: dict[str, list[str]] = {}
    name = f"check_operations_{checks}"
    with Counter.service(mongod, raw, name, runner_checks=checks) as (service, counter):
        user.ensure_admin_key(ADMIN_KEY, now=EPOCH)
        service.user("ada")
        service.problem(1)
        maintenance: Any = service.services.maintain
        maintenance._next = maintenance._next_tidy = datetime.max.replace(tzinfo=UTC)
        runner = service.runner()
        prove(service, runner)
        # Once beforehand: what is known of the problem is read only once.
        for name in ("sn_0", "sn_1"):
            service.submit("ada", 1, name)
            with counter.counted() as sent["claim"]:
                job_id = service.claim(runner)["job_id"]
            with counter.counted() as sent["heartbeat"]:
                body = {"active_job_ids": [job_id], "report_lost": True}
                service.ok("POST", runner.path("heartbeat"), key=runner.token, json=body)
            with counter.counted() as sent["complete"]:
                assert service.complete(runner, job_id, "WA").status_code == 204
        with counter.counted() as sent["empty"]:
            assert service.claim(runner) is None
    return sent


@pytest.mark.parametrize("verb", ["claim", "heartbeat", "complete", "empty"])
def test_a_runner_off_probation_pays_nothing_for_checks(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]], verb: str
) -> None:
    off, on = (judging(mongod, mongo_client, checks) for checks in ("off", "on"))
    assert on[verb] == off[verb]
    assert off[verb]
