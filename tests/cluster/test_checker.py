"""The checker finds nothing in a healthy world, and names every fault that is planted in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatch.lease import LeaseRules
from tests.cluster.checker import check
from tests.cluster.snapshot import Retention, Snapshot
from tests.cluster.wire import expected_of
from tests.faults import ledger

RULES = LeaseRules(lease_ttl_s=6, max_attempts=5)
AT = datetime(2030, 1, 1, tzinfo=UTC)
LATER_S = 100
CODE = "# a program\n"
HANDED_OUT = {"tasks": [], "testdata_sha256": "5" * 64, "checker": "default"}


def entry(second: float, event: str, fence: int, attempts: int, **more: Any) -> dict[str, Any]:
    at = AT + timedelta(seconds=second)
    return {
        "at": at,
        "event": event,
        "job_id": "jb_1",
        "fence": fence,
        "attempts": attempts,
        **more,
    }


class World:
    """One submission: claimed by r1, which died, reclaimed and landed by r2."""

    def __init__(self) -> None:
        verdict = expected_of(CODE.encode())
        self.submission: dict[str, Any] = {
            "_id": "s1",
            "username": "ada",
            "problem_id": 1,
            "submitted_at": AT,
            "status": verdict["status"],
            "fence": 4,
            "job_id": "jb_1",
            "code_blob": "bs_code",
            "result": {
                **verdict,
                "job_id": "jb_1",
                "fence": 4,
                "judged_at": AT + timedelta(seconds=9),
                "outputs_blob": "bs_outputs",
            },
            "counted": dict(verdict),
        }
        self.blobs = {"bs_code", "bs_outputs", "bs_preview"}
        self.rejudge: dict[str, Any] = {"_id": "rj_1", "state": "applied", "held": False}
        self.item: dict[str, Any] = {
            "_id": "rj_1/s1",
            "rejudge": "rj_1",
            "submission": "s1",
            "state": "done",
            "after": dict(verdict),
            "decided": "applied",
            "result": {"outputs_blob": "bs_preview"},
        }
        self.job: dict[str, Any] = {
            "_id": "s1",
            "job_id": "jb_1",
            "state": "done",
            "outcome": "verdict",
            "fence": 4,
            "attempts": 2,
            "leased_by": "r2",
            "lease_token": "t2",
            "handed_out": HANDED_OUT,
            "replaced_ids": [],
            "history": [
                entry(0, "enqueue", 1, 0),
                entry(1, "claim", 2, 1, runner_id="r1"),
                entry(8, "reclaim", 3, 2, runner_id="r2"),
                entry(9, "complete_begins", 4, 2, runner_id="r2"),
                entry(9, "complete_ends", 4, 2, runner_id="r2"),
            ],
        }
        self.homework: dict[str, Any] = {
            "_id": "hw",
            "start": AT - timedelta(days=1),
            "end": AT + timedelta(days=1),
            "penalty": "score = 0",
            "problem_ids": [1],
            "students": ["ada"],
            "recompute_due": False,
        }
        self.user: dict[str, Any] = {
            "_id": "ada",
            **ledger.counters("ada", [self.submission]),
        }
        self.status: dict[str, Any] = {
            "_id": "hw/ada",
            "problems": ledger.entries(self.homework, "ada", [self.submission]),
        }
        self.diary: list[dict[str, Any]] = [
            self.noted("submit", code=CODE, status=0),
            self.noted("submit", code=CODE, status=201),
            self.noted("submit_again", status=409),
            self.noted("leased", runner="r1", job="jb_1", token="t1"),
            self.noted("leased", runner="r2", job="jb_1", token="t2"),
            self.noted("complete", runner="r2", job="jb_1", token="t2", status=204),
            self.noted("complete", runner="r1", job="jb_1", token="t1", status=409),
            {
                "at": 9.0,
                "kind": "last_edit",
                "homework": "hw",
                "status": 200,
                "penalty": self.homework["penalty"],
                "students": ["ada"],
                "problem_ids": [1],
            },
        ]
        self.submissions, self.jobs = [self.submission], [self.job]

    @staticmethod
    def noted(kind: str, **fields: Any) -> dict[str, Any]:
        return {"at": 0.0, "kind": kind, "submission": "s1", **fields}

    def findings(self, retention: Retention | None = None) -> set[str]:
        snapshot = Snapshot(
            submissions=self.submissions,
            jobs=self.jobs,
            users=[self.user],
            homeworks=[self.homework],
            student_status=[self.status],
            rejudges=[self.rejudge],
            rejudge_items=[self.item],
            blobs=self.blobs,
            at=AT.timestamp() + LATER_S,
        )
        found = check(self.diary, copy.deepcopy(snapshot), RULES, retention)
        return {finding.name for finding in found}


def test_nothing_is_found_in_a_healthy_world() -> None:
    assert World().findings() == set()


def lose_the_submission(world: World) -> None:
    world.submissions = []
    world.jobs = []


def leave_it_pending(world: World) -> None:
    world.submission["status"] = -1


def judge_the_other_program(world: World) -> None:
    world.submission["status"] = (world.submission["status"] + 1) % 3


def count_something_else(world: World) -> None:
    world.submission["counted"] = {"status": 6, "score": 0}


def land_a_judge_error(world: World) -> None:
    world.submission.update(status=6, result={"score": 0})


def show_another_verdict(world: World) -> None:
    world.diary.append(world.noted("shown", verdict=(world.submission["status"] + 1) % 3))


def take_it_in_twice(world: World) -> None:
    world.diary.append(world.noted("submit", code=CODE, status=201))


def take_the_other_program_in(world: World) -> None:
    world.diary.append(world.noted("submit_again", status=201))


def give_one_lease_to_two(world: World) -> None:
    world.diary.append(world.noted("leased", runner="r3", job="jb_1", token="t2"))


def reclaim_before_the_time(world: World) -> None:
    world.job["history"][2]["at"] = AT + timedelta(seconds=3)


def forget_a_completion(world: World) -> None:
    world.diary[4] = world.noted("complete", runner="r1", job="jb_1", token="t1", status=204)


def forget_a_completed_job(world: World) -> None:
    world.diary.append(world.noted("complete", runner="r1", job="jb_0", token="t0", status=204))


def count_twice(world: World) -> None:
    world.user["submission"] += 1


def keep_an_old_standing(world: World) -> None:
    world.status["problems"]["1"]["submissionIds"] = []


def raise_the_submissions_fence(world: World) -> None:
    world.submission["fence"] = 5


def skip_an_edge(world: World) -> None:
    del world.job["history"][3]


def leave_a_mark_due(world: World) -> None:
    world.job["mark_due"] = 1


def leave_a_submission_without_a_job(world: World) -> None:
    world.jobs, world.diary = [], world.diary[:3]


def leave_it_pending_though_nobody_was_told(world: World) -> None:
    world.submission["status"] = -1
    world.diary = []


def leave_a_job_without_a_submission(world: World) -> None:
    world.submissions, world.diary = [], []


def land_under_another_fence(world: World) -> None:
    world.submission["fence"] = 3


def show_the_verdict_of_another_job(world: World) -> None:
    world.submission["result"]["job_id"] = "jb_0"


def lose_the_code(world: World) -> None:
    world.blobs.discard("bs_code")


def lose_the_outputs(world: World) -> None:
    world.blobs.discard("bs_outputs")


def lose_the_outputs_of_a_preview(world: World) -> None:
    world.blobs.discard("bs_preview")


def let_a_rejudge_never_end(world: World) -> None:
    world.rejudge["state"] = "running"


def leave_a_rejudge_held(world: World) -> None:
    world.rejudge["held"] = True


def leave_an_item_unsettled(world: World) -> None:
    world.item["state"] = "queued"


def leave_an_item_undecided(world: World) -> None:
    world.item["decided"] = None


def change_the_verdict_by_a_rejudge(world: World) -> None:
    world.item["after"]["score"] += 1


def leave_a_homework_to_recompute(world: World) -> None:
    world.homework["recompute_due"] = True


def leave_somebody_who_left(world: World) -> None:
    world.homework["departed"] = ["bob"]


def lose_the_last_edit(world: World) -> None:
    world.diary[-1]["penalty"] = "score = 1"


def answer_no_last_edit(world: World) -> None:
    world.diary[-1]["status"] = 503


def keep_a_standing_of_one_who_left(world: World) -> None:
    world.homework["students"] = world.diary[-1]["students"] = []


def answer_500(world: World) -> None:
    world.diary.append({"at": 0.0, "kind": "bug", "request": "GET queue", "status": 500})


PLANTED: dict[str, list[Callable[[World], None]]] = {
    "lost_submit": [lose_the_submission],
    "no_verdict": [leave_it_pending],
    "wrong_verdict": [
        judge_the_other_program,
        count_something_else,
        land_a_judge_error,
        show_another_verdict,
        change_the_verdict_by_a_rejudge,
    ],
    "taken_twice": [take_it_in_twice, take_the_other_program_in],
    "leased_twice": [give_one_lease_to_two, reclaim_before_the_time],
    "lost_completion": [forget_a_completion, forget_a_completed_job],
    "wrong_totals": [count_twice, keep_an_old_standing, keep_a_standing_of_one_who_left],
    "broken_invariant": [
        raise_the_submissions_fence,
        skip_an_edge,
        land_under_another_fence,
        show_the_verdict_of_another_job,
    ],
    "left_over": [
        leave_a_mark_due,
        leave_a_submission_without_a_job,
        leave_it_pending_though_nobody_was_told,
        leave_a_job_without_a_submission,
        let_a_rejudge_never_end,
        leave_a_rejudge_held,
        leave_an_item_unsettled,
        leave_an_item_undecided,
        leave_a_homework_to_recompute,
        leave_somebody_who_left,
    ],
    "lost_blob": [lose_the_code, lose_the_outputs, lose_the_outputs_of_a_preview],
    "lost_edit": [lose_the_last_edit, answer_no_last_edit],
    "bug": [answer_500],
}


@pytest.mark.parametrize(
    ("name", "plant"),
    [(name, plant) for name, plants in PLANTED.items() for plant in plants],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_planted_fault_is_named(name: str, plant: Callable[[World], None]) -> None:
    world = World()
    plant(world)
    assert name in world.findings()


def retire_the_job(world: World) -> None:
    """It was done at second 9, and its end was acknowledged then."""
    world.jobs = []
    for noted in world.diary:
        noted["at"] = AT.timestamp() + 9


def retire_and_rejudge(world: World) -> None:
    """Under a new job, which knows of none before it."""
    retire_the_job(world)
    world.job.update(
        job_id="jb_9",
        fence=6,
        attempts=1,
        lease_token="t9",
        history=[
            entry(60, "enqueue", 5, 0) | {"job_id": "jb_9"},
            entry(61, "claim", 6, 1, runner_id="r2") | {"job_id": "jb_9"},
            entry(62, "complete_begins", 7, 1, runner_id="r2") | {"job_id": "jb_9"},
            entry(62, "complete_ends", 7, 1, runner_id="r2") | {"job_id": "jb_9"},
        ],
    )
    world.job["fence"] = world.submission["fence"] = 7
    world.submission["result"].update(job_id="jb_9", fence=7)
    world.jobs = [world.job]


@pytest.mark.parametrize("plant", [retire_the_job, retire_and_rejudge])
@pytest.mark.parametrize(
    ("retention", "may_be"),
    [
        (Retention(after_s=20, last_digits="1"), True),
        (Retention(after_s=95, last_digits="1"), False),
        (Retention(after_s=20, last_digits="2"), False),
        (None, False),
    ],
)
def test_a_job_may_be_gone_when_it_was_done_long_ago(
    plant: Callable[[World], None], retention: Retention | None, may_be: bool
) -> None:
    world = World()
    plant(world)
    unless = {"lost_completion"} if world.jobs else {"left_over", "lost_completion"}
    assert world.findings(retention) == (set() if may_be else unless)
