"""Old jobs go, their submissions stay, and no fence ever goes back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app import Maintenance
from dispatch.invariants import check_database
from dispatch.retention import RETIRED_MAX, retire_jobs
from mongo.submission import keep_fences
from settings import Settings
from tests.factories import DAY, Runner, Service

RETENTION = timedelta(days=30)


def judged(service: Service) -> Runner:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    service.judge(runner, "s1", "AC")
    return runner


def retire(service: Service) -> int:
    return retire_jobs(
        service.services.queue,
        done_before=service.clock() - RETENTION,
        keep_fences=keep_fences,
    )


def test_i4_a_rejudge_of_a_submission_without_a_job_starts_above_its_fence(
    service: Service,
) -> None:
    runner = judged(service)
    fence = service.view_job("s1")["fence"]
    service.clock.advance(31 * DAY.total_seconds())
    assert retire(service) == 1
    assert service.database["jobs"].count_documents({}) == 0
    shown = service.ok("GET", "/submissions/s1")
    assert (shown["verdict"], shown["job"]) == ("AC", None)

    service.ok("POST", "/submissions/s1/rejudge")
    assert service.view_job("s1")["fence"] > fence
    runner = service.runner("later")
    service.judge(runner, "s1", "WA")
    assert service.view("s1")["verdict"] == "WA"
    assert check_database(service.database) == []


def test_i4_a_fence_that_only_the_job_knew_is_kept(service: Service) -> None:
    judged(service)
    service.database["jobs"].update_one({"_id": "s1"}, {"$set": {"fence": 9}})
    service.clock.advance(31 * DAY.total_seconds())
    retire(service)
    service.ok("POST", "/submissions/s1/rejudge")
    assert service.view_job("s1")["fence"] == 10


def test_i7_the_id_of_a_submission_without_a_job_stays_taken(service: Service) -> None:
    judged(service)
    service.clock.advance(31 * DAY.total_seconds())
    retire(service)
    answer = service.submit_over_http(
        service.keys["ada"], problem_id=1, language=2, submission_id="s1"
    )
    assert answer.status_code == 409
    service.sweep()
    assert service.database["jobs"].count_documents({}) == 0


def test_a_late_complete_of_a_removed_job_is_404(service: Service) -> None:
    runner = judged(service)
    job_id = service.view_job("s1")["job_id"]
    service.clock.advance(31 * DAY.total_seconds())
    retire(service)
    # The same identity, as if it had been seen all the time.
    service.database["runners"].update_many({}, {"$set": {"last_seen": service.clock()}})
    answer = service.complete(runner, job_id, "WA")
    assert (answer.status_code, answer.get_json(force=True)["reason"]) == (404, "unknown_job")
    assert service.view("s1")["verdict"] == "AC"


@pytest.mark.parametrize(
    "still_due",
    [
        {"state": "pending"},
        {"state": "leased"},
        {"state": "landing"},
        {"mark_due": 3},
        {"restore_due": 3},
        {"done_at": None},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_job_that_is_open_or_has_something_due_stays(
    service: Service, still_due: dict[str, Any]
) -> None:
    judged(service)
    service.database["jobs"].update_one({"_id": "s1"}, {"$set": still_due})
    service.clock.advance(31 * DAY.total_seconds())
    assert retire(service) == 0
    assert service.database["jobs"].count_documents({}) == 1


def test_a_job_done_lately_stays(service: Service) -> None:
    judged(service)
    service.clock.advance(29 * DAY.total_seconds())
    assert retire(service) == 0


def test_a_job_rejudged_between_the_look_and_the_removal_stays(service: Service) -> None:
    judged(service)
    service.clock.advance(31 * DAY.total_seconds())

    def keep(fences: Any) -> None:
        keep_fences(fences)
        service.ok("POST", "/submissions/s1/rejudge")

    queue = service.services.queue
    assert retire_jobs(queue, done_before=service.clock() - RETENTION, keep_fences=keep) == 0
    assert service.view_job("s1")["state"] == "pending"


def test_one_call_removes_a_bounded_number(service: Service) -> None:
    judged(service)
    job = service.view_job("s1")
    service.database["jobs"].insert_many(
        [{**job, "_id": f"x{n}", "job_id": f"jb_x{n}", "claim_id": f"c{n}"} for n in range(120)]
    )
    service.clock.advance(31 * DAY.total_seconds())
    assert [retire(service), retire(service)] == [RETIRED_MAX, 121 - RETIRED_MAX]


@pytest.mark.parametrize(("days", "left"), [(30, 0), (None, 1)])
def test_the_sweep_removes_old_jobs_only_where_it_is_told_to(
    service: Service, days: int | None, left: int
) -> None:
    judged(service)
    service.clock.advance(31 * DAY.total_seconds())
    known: Any = service.services.maintain
    retention = None if days is None else timedelta(days=days)
    Maintenance(known._queue, known._domain_queue, known._land, service.clock, retention).run()
    assert service.database["jobs"].count_documents({}) == left


def test_the_setting_is_a_whole_number_of_days() -> None:
    assert Settings().job_retention_days is None
    assert Settings(job_retention_days=1).job_retention_days == 1
    with pytest.raises(ValueError):
        Settings(job_retention_days=0)


def test_a_preview_judges_what_has_no_job_any_more(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    service.submit("ada", 1, "sn_1")
    service.judge(runner, "sn_1", "WA")
    fence = service.view_job("sn_1")["fence"]
    service.clock.advance(RETENTION.total_seconds() + 1)
    assert retire(service) == 1
    wish = {"problem_id": 1, "mode": "preview"}
    rejudge_id = service.ok("POST", "/rejudges", json=wish)["rejudge_id"]
    for _ in range(3):
        service.sweep()
    runner = service.runner("later")
    payload = service.claim(runner)
    assert payload["submission_id"] == "sn_1"
    assert service.view_job("sn_1")["fence"] > fence
    service.complete(runner, payload["job_id"], "AC")
    assert service.view("sn_1")["verdict"] == "WA", "a preview touches no grade"
    service.sweep()
    assert service.call("POST", f"/rejudges/{rejudge_id}/apply").status_code == 202
    for _ in range(2):
        service.sweep()
    assert service.view("sn_1")["verdict"] == "AC"
    assert service.counters("ada") == (1, 1, [1])
