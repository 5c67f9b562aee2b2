"""The checker finds nothing in a healthy world, and names every fault that is planted in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatch.lease import LeaseRules
from tests.cluster.checker import Snapshot, check
from tests.cluster.wire import expected_of
from tests.faults import ledger

RULES = LeaseRules(lease_ttl_s=6, max_attempts=5)
AT = datetime(2030, 1, 1, tzinfo=UTC)
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
            "result": dict(verdict),
            "counted": dict(verdict),
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
        ]
        self.submissions, self.jobs = [self.submission], [self.job]

    @staticmethod
    def noted(kind: str, **fields: Any) -> dict[str, Any]:
        return {"at": 0.0, "kind": kind, "submission": "s1", **fields}

    def findings(self) -> set[str]:
        snapshot = Snapshot(
            submissions=self.submissions,
            jobs=self.jobs,
            users=[self.user],
            homeworks=[self.homework],
            student_status=[self.status],
        )
        return {finding.name for finding in check(self.diary, copy.deepcopy(snapshot), RULES)}


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
    ],
    "taken_twice": [take_it_in_twice, take_the_other_program_in],
    "leased_twice": [give_one_lease_to_two, reclaim_before_the_time],
    "lost_completion": [forget_a_completion, forget_a_completed_job],
    "wrong_totals": [count_twice, keep_an_old_standing],
    "broken_invariant": [raise_the_submissions_fence, skip_an_edge],
    "left_over": [leave_a_mark_due, leave_a_submission_without_a_job],
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
