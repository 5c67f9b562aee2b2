"""What a failover takes back leaves nothing behind in documents that it does not touch.

Each scenario is played undisturbed, and with the primary cut off under it: see `stage`. The
second test of each is about the first: with the rule dropped, the same fault does its harm.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from dispatch import job as verbs
from dispatch.retry import LeaseEnd, Retry
from mongo import storage
from tests.cluster.cut_off import Document, Drop, drop, queue_of
from tests.cluster.stage import Scenario, Scene, Stage
from tests.factories import DAY, EPOCH


def rejudged(database: Database[Document]) -> None:
    """Another process rejudges s1: the job is written, the mark not yet."""
    verbs.rejudge_job(
        queue_of(database),
        submission_id="s1",
        problem_id=1,
        language=2,
        submission_fence=0,
        now=lambda: EPOCH,
    )


# -- jobs and submissions ------------------------------------------------------------------


def a_missing_mark_is_repeated(scene: Scene) -> None:
    scene.judged("s1", "AC")
    scene.fault.arm(("find", "jobs"), rejudged)
    scene.maintain("_mark_rejudged")


def a_cancelled_rejudge_is_brought_back(scene: Scene) -> None:
    def cancelled(database: Database[Document]) -> None:
        queue = queue_of(database)
        job = queue.jobs.get("s1")
        assert job is not None
        verbs.cancel_job(queue, job, now=lambda: EPOCH)

    scene.judged("s1", "AC")
    scene.service.services.judge.rejudge("s1")
    scene.fault.arm(("find", "jobs"), cancelled)
    scene.maintain("_bring_back_cancelled")


def old_jobs_are_retired(scene: Scene) -> None:
    """The phantom: its job was rejudged again and again, and was done long ago."""

    def done_long_ago(database: Database[Document]) -> None:
        done = {"state": "done", "outcome": "verdict", "done_at": EPOCH, "fence": 99}
        database["jobs"].update_one({"_id": "s1"}, {"$set": done, "$unset": {"mark_due": ""}})

    scene.judged("s1", "AC")
    scene.service.services.judge.rejudge("s1")
    scene.service.clock.at += 3 * DAY
    scene.fault.arm(("find", "jobs"), done_long_ago)
    scene.maintain("_retire_jobs")


def missing_jobs_are_entered(scene: Scene) -> None:
    def handed_in(database: Database[Document]) -> None:
        kept: Any = database["submissions"].find_one({"_id": "s1"})
        pending = {"_id": "s2", "status": -1, "result": None, "counted": None, "fence": 0}
        database["submissions"].insert_one({**kept, **pending, "job_id": "jb_phantom"})

    scene.judged("s1", "AC")
    scene.fault.arm(("find", "submissions"), handed_in)
    scene.maintain("_right_waiting")


def what_leads_to_no_verdict_is_judged_afresh(scene: Scene) -> None:
    """The phantom: s1 waits under a fence that its job never had. Its runner is at it."""
    scene.service.submit("ada", 1, "s1")
    job_id = scene.service.claim(scene.runner)["job_id"]
    scene.fault.arm(("find", "submissions"), overtaken)
    scene.maintain("_right_waiting")
    scene.fault.complete()
    scene.service.complete(scene.runner, job_id, "AC")


def blobs_that_nothing_refers_to_are_dropped(scene: Scene) -> None:
    """The phantom refers to others: both the program and its outputs look forgotten."""

    def refers_to_others(database: Database[Document]) -> None:
        others = {"code_blob": "bs_other", "result.outputs_blob": "bs_others"}
        database["submissions"].update_one({"_id": "s1"}, {"$set": others})

    scene.judged("s1", "AC")
    scene.fault.arm(("find", "blobs.files"), refers_to_others)
    scene.maintain("_drop_blobs")


def a_blob_that_only_a_newer_primary_knows_an_owner_of(scene: Scene) -> None:
    """Nothing is taken back here: the service asks a primary that knows too little."""
    scene.judged("s1", "AC")
    blob_id = storage.put(b"what a landing just stored", name="outputs/s1", fence=9)
    scene.fault.arm(
        ("find", "submissions"),
        elsewhere=lambda database: database["submissions"].update_one(
            {"_id": "s1"}, {"$set": {"result.outputs_blob": blob_id}}
        ),
    )
    scene.maintain("_drop_blobs")


# -- homeworks, counters -------------------------------------------------------------------


def due(scene: Scene, first: str) -> None:
    """Ada has two late submissions, and the homework's recompute is left to the sweep."""
    scene.service.homework("hw", [1], ["ada"], end=EPOCH - timedelta(hours=1), penalty=first)
    scene.judged("s1", "AC")
    scene.judged("s2", "WA")
    scene.service.database["homeworks"].update_one({"_id": "hw"}, {"$set": {"recompute_due": True}})


def edited(fields: Document) -> Any:
    """An edit by another process, as it is written first."""

    def edit(database: Database[Document]) -> None:
        database["homeworks"].update_one(
            {"_id": "hw"},
            {"$set": {**fields, "recompute_due": True}, "$inc": {"version": 1}},
        )

    return edit


def a_homework_is_finished_by_its_penalty(scene: Scene) -> None:
    due(scene, "score = score / 2")
    scene.fault.arm(("find", "student_status"), edited({"penalty": "score = score / 4"}))
    scene.maintain("_finish_homeworks")


def a_homework_is_finished_for_its_students(scene: Scene) -> None:
    due(scene, "score = score / 2")
    scene.fault.arm(("find", "student_status"), edited({"students": ["bob"], "departed": ["ada"]}))
    scene.maintain("_finish_homeworks")


def a_homework_is_finished_while_another_edit_takes_its_version(scene: Scene) -> None:
    """The edit that stays has the version of the phantom that goes: its mark is its own."""
    due(scene, "score = score / 2")
    scene.fault.arm(
        ("find", "homeworks"),
        edited({"penalty": "score = score / 4"}),
        then=edited({"penalty": "score = score / 5"}),
        skip=1,
    )
    scene.maintain("_finish_homeworks")


def a_landing_counts_what_the_user_has(scene: Scene) -> None:
    """The phantom: another submission of ada's has become accepted."""

    def accepted(database: Database[Document]) -> None:
        counted = {"status": 0, "score": 100}
        database["submissions"].update_one(
            {"_id": "s1"}, {"$set": {"status": 0, "counted": counted}}
        )

    scene.judged("s1", "WA")
    scene.service.submit("ada", 1, "s2")
    job_id = scene.service.claim(scene.runner)["job_id"]
    scene.fault.arm(("aggregate", "users"), accepted)
    answer = scene.service.complete(scene.runner, job_id, "WA")
    scene.told["complete"] = answer.status_code


# -- the queue -----------------------------------------------------------------------------


def a_claim_hands_out_a_revision(scene: Scene) -> None:
    def other_revision(database: Database[Document]) -> None:
        kept: Any = database["problems"].find_one({"_id": 1})
        tasks = [{**kept["tasks"][0], "task_score": 50}] * 2
        data = [*kept["testdata"], {**kept["testdata"][-1], "sha256": "9" * 64}]
        database["problems"].update_one(
            {"_id": 1}, {"$set": {"tasks": tasks, "testdata": data}, "$inc": {"revision": 1}}
        )

    scene.service.submit("ada", 1, "s1")
    scene.fault.arm(("find", "problems"), other_revision)
    payload = scene.service.claim(scene.runner)
    scene.told["tasks"] = len(payload["tasks"])
    scene.told["sha256"] = payload["testdata_sha256"]
    scene.service.complete(scene.runner, payload["job_id"], *["AC"] * len(payload["tasks"]))


def a_claim_looks_at_the_line(scene: Scene) -> None:
    """The newest line is what it looks at: s1 seems to wait, and another runner has it.

    The claim's own write guards the very job, so no rule is there to drop.
    """

    def given_back(database: Database[Document]) -> None:
        queue = queue_of(database)
        job = queue.jobs.get("s1")
        assert job is not None
        queue.jobs.give_back(
            job,
            runner_id=scene.runner.runner_id,
            lease_token=None,
            end=LeaseEnd.PREP_FAILED,
            retry=Retry(refunded=False, tried=True, others_first_until=EPOCH),
            now=EPOCH,
        )

    other = scene.service.runner("other")
    scene.service.submit("ada", 1, "s1")
    job_id = scene.service.claim(scene.runner)["job_id"]
    scene.fault.arm(("aggregate", "jobs"), given_back)
    scene.told["given"] = scene.service.claim(other)
    scene.fault.complete()
    scene.told["complete"] = scene.service.complete(scene.runner, job_id, "AC").status_code


def a_pause_keeps_a_job_back(scene: Scene) -> None:
    """By a phantom pause a job waits for a moment, and no longer."""
    control = scene.service.services.queue.control
    control.pause(by="the test", why="", now=EPOCH)
    control.resume()
    scene.service.submit("ada", 1, "s1")
    pause = {"by": "another process", "why": "", "at": EPOCH}
    scene.fault.arm(
        ("aggregate", "jobs"),
        lambda database: database["dispatch_control"].update_one({}, {"$set": {"paused": pause}}),
    )
    payload = scene.service.claim(scene.runner)
    if payload is not None:
        scene.service.complete(scene.runner, payload["job_id"], "WA")


def a_held_rejudge_is_kept_back(scene: Scene) -> None:
    """By a phantom hold its jobs wait for a moment, and no longer."""
    judge: Any = scene.service.services.judge
    scene.judged("s1", "AC")
    asked = judge.start_rejudge(filter={"problem_id": 1}, mode="replace", by="the test")
    judge.hold_rejudge(asked["rejudge_id"])
    judge.release_rejudge(asked["rejudge_id"])
    scene.advance(3)
    held = {"$set": {"held_rejudges": [asked["rejudge_id"]]}}
    scene.fault.arm(
        ("aggregate", "jobs"),
        lambda database: database["dispatch_control"].update_one({}, held),
    )
    payload = scene.service.claim(scene.runner)
    if payload is not None:
        scene.service.complete(scene.runner, payload["job_id"], "WA")


def a_retired_job_is_entered_anew(scene: Scene) -> None:
    """The insert of a rejudge meets the job that another process has just entered."""
    scene.judged("s1", "AC")
    scene.service.clock.at += 3 * DAY
    scene.maintain("_retire_jobs")
    scene.fault.arm(("insert", "jobs"), rejudged)
    scene.service.services.judge.rejudge("s1")


# -- landings that meet a newer fence ------------------------------------------------------


def overtaken(database: Database[Document]) -> None:
    """Another process marks s1 for a rejudge: what is older is refused."""
    database["submissions"].update_one({"_id": "s1"}, {"$set": {"fence": 99, "status": -1}})


def a_judge_error_lands(scene: Scene) -> None:
    scene.service.submit("ada", 1, "s1")
    for _ in range(3):
        scene.service.claim(scene.runner)
        scene.service.clock.advance(120)
    scene.fault.arm(("findAndModify", "submissions"), overtaken)
    scene.maintain("_land_judge_errors")


def a_result_lands(scene: Scene) -> None:
    scene.service.submit("ada", 1, "s1")
    job_id = scene.service.claim(scene.runner)["job_id"]
    scene.fault.arm(("findAndModify", "submissions"), overtaken)
    answer = scene.service.complete(scene.runner, job_id, "AC", may_fail=True)
    scene.told["lands"] = answer.status_code


READING = [
    a_missing_mark_is_repeated,
    a_cancelled_rejudge_is_brought_back,
    old_jobs_are_retired,
    missing_jobs_are_entered,
    what_leads_to_no_verdict_is_judged_afresh,
    blobs_that_nothing_refers_to_are_dropped,
    a_homework_is_finished_by_its_penalty,
    a_homework_is_finished_for_its_students,
    a_homework_is_finished_while_another_edit_takes_its_version,
    a_landing_counts_what_the_user_has,
    a_claim_hands_out_a_revision,
]
HARMLESS = [
    a_claim_looks_at_the_line,
    a_pause_keeps_a_job_back,
    a_held_rejudge_is_kept_back,
    # What its insert meets is looked at again, as a majority has it.
    a_retired_job_is_entered_anew,
]
"""Where no rule about reads is needed: there is none to drop."""
GUARDED = [a_judge_error_lands, a_result_lands]
PROVED = [a_blob_that_only_a_newer_primary_knows_an_owner_of]


@pytest.mark.parametrize(
    "scenario", [*READING, *HARMLESS, *GUARDED, *PROVED], ids=lambda one: one.__name__
)
def test_what_is_taken_back_leaves_nothing(stage: Stage, scenario: Scenario) -> None:
    stage.expect_no_harm(scenario)


@pytest.mark.parametrize("scenario", READING, ids=lambda one: one.__name__)
def test_were_the_newest_state_read_it_would(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    drop(Drop.READS, monkeypatch)
    stage.expect_harm(scenario)


@pytest.mark.parametrize("scenario", GUARDED, ids=lambda one: one.__name__)
def test_were_writes_not_durable_it_would(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    drop(Drop.WRITES, monkeypatch)
    stage.expect_harm(scenario)


@pytest.mark.parametrize("scenario", PROVED, ids=lambda one: one.__name__)
def test_were_nothing_proved_it_would(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    drop(Drop.PROOF, monkeypatch)
    stage.expect_harm(scenario)
