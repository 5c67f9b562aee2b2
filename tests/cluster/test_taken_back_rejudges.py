"""Bulk rejudges and previews go by nothing that a failover takes back.

As in `test_taken_back`: each step of a rejudge is played with the primary cut off under it.
"""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from dispatch import job as verbs
from tests.cluster.cut_off import Document, Drop, Write, drop, queue_of
from tests.cluster.stage import Scenario, Scene, Stage
from tests.factories import DAY, EPOCH


def started(scene: Scene, *, steps: int, mode: str = "replace") -> str:
    """Rejudge s1, which is accepted, with others of its problem; return the rejudge's id."""
    scene.judged("s1", "AC")
    judge: Any = scene.service.services.judge
    asked = judge.start_rejudge(filter={"problem_id": 1}, mode=mode, by="the test")
    scene.advance(steps)
    return str(asked["rejudge_id"])


def requeued(rejudge_id: str | None) -> Write:
    """Another process puts s1 into the queue anew, for that rejudge or by itself."""

    def requeue(database: Database[Document]) -> None:
        verbs.rejudge_job(
            queue_of(database),
            submission_id="s1",
            problem_id=1,
            language=2,
            submission_fence=3,
            now=lambda: EPOCH,
            rejudge_id=rejudge_id,
        )

    return requeue


def changed(fields: Document) -> Write:
    """Another process writes the one item there is."""

    def change(database: Database[Document]) -> None:
        assert database["rejudge_items"].update_one({}, {"$set": fields}).matched_count

    return change


def what_fits_is_collected(scene: Scene) -> None:
    def handed_in(database: Database[Document]) -> None:
        kept: Any = database["submissions"].find_one({"_id": "s1"})
        database["submissions"].insert_one({**kept, "_id": "s0", "job_id": "jb_phantom"})

    started(scene, steps=0)
    scene.fault.arm(("find", "submissions"), handed_in)
    scene.advance()


def what_waits_is_queued(scene: Scene) -> None:
    rejudge_id = started(scene, steps=2)
    scene.fault.arm(("find", "submissions"), requeued(rejudge_id))
    scene.advance()


def what_was_overtaken_is_settled(scene: Scene) -> None:
    started(scene, steps=3)
    scene.service.claim(scene.runner)
    scene.fault.arm(("find", "jobs"), requeued(None))
    scene.advance()


def what_is_left_is_counted(scene: Scene) -> None:
    started(scene, steps=3)
    scene.fault.arm(("aggregate", "rejudge_items"), changed({"state": "done"}))
    scene.advance()


def what_is_judged_while_it_is_cancelled_lands(scene: Scene) -> None:
    rejudge_id = started(scene, steps=3)
    scene.service.claim(scene.runner)
    scene.service.services.judge.cancel_rejudge(rejudge_id)
    scene.fault.arm(("find", "jobs"), requeued(None))
    scene.advance()


def previewed(scene: Scene) -> str:
    """Preview s1 to its end: it would be wrong."""
    rejudge_id = started(scene, steps=3, mode="preview")
    scene.service.judge(scene.runner, "s1", "WA")
    scene.advance()
    return rejudge_id


def a_preview_is_applied(scene: Scene) -> None:
    scene.service.services.judge.apply_rejudge(previewed(scene))
    scene.fault.arm(("find", "rejudge_items"), changed({"result.status": 5, "result.score": 7}))
    scene.advance()


def a_preview_is_discarded(scene: Scene) -> None:
    """The phantom names what must not go: the outputs of the result that stands."""
    scene.service.services.judge.discard_rejudge(previewed(scene))
    kept: Any = scene.service.database["submissions"].find_one({"_id": "s1"})
    scene.fault.arm(
        ("find", "rejudge_items"), changed({"result.outputs_blob": kept["result"]["outputs_blob"]})
    )
    scene.advance()


def a_preview_enters_the_queue(scene: Scene) -> None:
    """Its job was retired; the phantom has entered it anew, and the insert meets that."""
    scene.judged("s1", "AC")
    scene.service.clock.at += 3 * DAY
    scene.maintain("_retire_jobs")
    judge: Any = scene.service.services.judge
    judge.start_rejudge(filter={"problem_id": 1}, mode="preview", by="the test")
    scene.advance(2)
    scene.fault.arm(("insert", "jobs"), requeued(None))
    scene.advance()


READING = [
    what_fits_is_collected,
    what_waits_is_queued,
    what_was_overtaken_is_settled,
    what_is_left_is_counted,
    what_is_judged_while_it_is_cancelled_lands,
    a_preview_is_applied,
    a_preview_is_discarded,
]


@pytest.mark.parametrize(
    "scenario", [*READING, a_preview_enters_the_queue], ids=lambda one: one.__name__
)
def test_what_is_taken_back_leaves_nothing(stage: Stage, scenario: Scenario) -> None:
    stage.expect_no_harm(scenario)


@pytest.mark.parametrize("scenario", READING, ids=lambda one: one.__name__)
def test_were_the_newest_state_read_it_would(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    drop(Drop.READS, monkeypatch)
    stage.expect_harm(scenario)
