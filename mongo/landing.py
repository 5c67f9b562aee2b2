"""Landing: writing a result where it counts, and what follows from it.

Guarantees: I6. A result is written only under a fence at least as new as the stored one; counters
and standings are recomputed from the submissions, never incremented, so that a landing may be
repeated, stopped anywhere, or run beside others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pymongo import ReturnDocument

from dispatch.contract import HandedOut, InvalidResult, JudgeResult, Landed, Verdict
from mongo import after_landing, engine, outputs, recompute, rejudge_items, storage
from mongo.outputs import Bundle
from mongo.scoring import FoldedResult, FoldedTask, fold

Contradicted = Callable[[Sequence[str], int], None]
"""Is told of runner ids and the language that they differed in."""

TRIES_MAX = 20
BEFORE = {
    "username": 1,
    "problem_id": 1,
    "language": 1,
    **dict.fromkeys(
        (
            "result.outputs_blob",
            "result.status",
            "result.judged_by",
            "result.testdata_sha256",
        ),
        1,
    ),
}
"""What is wanted of a submission as it was before a write."""

JUDGE_ERROR: dict[str, Any] = {
    "status": Verdict.JE.value,
    "score": 0,
    "exec_time_ms": -1,
    "memory_usage_kib": -1,
    "tasks": [],
    "outputs_blob": None,
    "testdata_sha256": None,
}


def process_result(
    *,
    submission_id: str,
    job_id: str,
    fence: int,
    tasks: JudgeResult | None,
    handed_out: HandedOut | None,
    now: Callable[[], datetime],
    rejudge_id: str | None = None,
    preview: bool = False,
    runner_id: str | None = None,
    contradicted: Contradicted | None = None,
) -> Landed:
    """Land a result, or a judge error (`tasks` None, or with one in it).

    See `dispatch.contract.ProcessResult`.

    `contradicted` is told of two runners whose verdicts on the same test data differ.

    Raises:
        InvalidResult: the result does not fit `handed_out`; nothing was written.
        RecomputeContendedError: other writers won every race; land again.
    """
    if tasks is None:
        result = {
            **JUDGE_ERROR,
            "job_id": job_id,
            "fence": fence,
            "judged_at": now(),
            "exhausted": True,
        }
    elif handed_out is None:
        raise InvalidResult("nothing was handed out under this lease")
    else:
        folded = fold(tasks, handed_out)
        result = {
            **_result(folded, outputs.store(submission_id, fence, tasks)),
            "job_id": job_id,
            "fence": fence,
            "judged_at": now(),
            "judged_by": runner_id,
            "testdata_sha256": handed_out.testdata_sha256,
            "exhausted": folded.status is Verdict.JE,
        }
    with engine.in_order():
        if preview and rejudge_id is not None:
            return _land_preview(submission_id, rejudge_id, result, contradicted)
        landed = (
            _land_judge_error(submission_id, result)
            if result["exhausted"]
            else _land_real(submission_id, result, contradicted)
        )
        if rejudge_id is not None and landed is not Landed.REFUSED:
            _note_landed(submission_id, rejudge_id, fence)
        return landed


def _land_real(
    submission_id: str, result: dict[str, Any], contradicted: Contradicted | None
) -> Landed:
    before = write_result(submission_id, guard={}, result=result)
    if before is None:
        _drop(result)
        return Landed.REFUSED
    finish_judging(before["username"], before["problem_id"])
    drop_outputs(before)
    _tell_contradiction(before, result, contradicted)
    return Landed.VERDICT


def _tell_contradiction(
    before: dict[str, Any], result: dict[str, Any], contradicted: Contradicted | None
) -> None:
    """Tell of the runner that judged before and the one that judged now, if they differ.

    After all is written: what comes of it concerns runners alone.
    """
    earlier = before.get("result") or {}
    was_by, is_by = earlier.get("judged_by"), result.get("judged_by")
    if contradicted is None or was_by is None or is_by is None or was_by == is_by:
        return
    if earlier.get("testdata_sha256") != result["testdata_sha256"]:
        return
    if Verdict.JE in (earlier.get("status"), result["status"]):
        return
    if earlier.get("status") != result["status"]:
        contradicted((was_by, is_by), before["language"])


def _note_landed(submission_id: str, rejudge_id: str, fence: int) -> None:
    """Tell the bulk rejudge what its job left standing. (Last: a landing may be repeated.)"""
    submission = engine.submissions().find_one(
        {"_id": submission_id}, {"result.status": 1, "result.score": 1}
    )
    if submission is not None and submission.get("result"):
        result = {**submission["result"], "fence": fence}
        rejudge_items.landed(rejudge_id, submission_id, result=result)


def _land_preview(
    submission_id: str,
    rejudge_id: str,
    result: dict[str, Any],
    contradicted: Contradicted | None,
) -> Landed:
    """Keep a result beside the submission's. Only the fence is raised: what is older is refused."""
    standing = {"_id": submission_id, "fence": engine.at_most(result["fence"])}
    shown = _update(standing, {"$set": {"fence": result["fence"]}})
    if shown is None:
        _drop(result)
        return Landed.REFUSED
    before = rejudge_items.landed(rejudge_id, submission_id, result=result, keep=True)
    if before is None:
        _drop(result)
        return Landed.REFUSED
    drop_outputs(before)
    _tell_contradiction(shown, result, contradicted)
    return Landed.VERDICT if result["status"] != Verdict.JE else Landed.JUDGE_ERROR


def finish_judging(username: str, problem_id: int) -> None:
    """Bring the user's counters and every homework's standing up to date.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    after_landing.recompute_landed(username, problem_id)


def _land_judge_error(submission_id: str, result: dict[str, Any]) -> Landed:
    job_id, fence = result["job_id"], result["fence"]
    # Not where it is pending: a rejudge kept the waiting job, and its end is to be seen.
    real_result_of_job = {
        "result.job_id": job_id,
        "result.exhausted": False,
        "status": {"$ne": Verdict.PENDING.value},
    }
    for _ in range(TRIES_MAX):
        # The last attempt may have died between its result and its end: that result stands.
        kept = _update(
            {"_id": submission_id, "fence": engine.at_most(fence), **real_result_of_job},
            {"$set": {"fence": fence}},
        )
        if kept is not None:
            _drop(result)
            finish_judging(kept["username"], kept["problem_id"])
            return Landed.VERDICT
        before = write_result(submission_id, guard={"$nor": [real_result_of_job]}, result=result)
        if before is not None:
            finish_judging(before["username"], before["problem_id"])
            drop_outputs(before)
            return Landed.JUDGE_ERROR
        newer = {"_id": submission_id, "fence": engine.at_most(fence)}
        if engine.submissions().find_one(newer, {"_id": 1}) is None:
            _drop(result)
            return Landed.REFUSED
    raise recompute.RecomputeContendedError(f"submission {submission_id} keeps changing")


def write_result(
    submission_id: str, *, guard: dict[str, Any], result: dict[str, Any]
) -> dict[str, Any] | None:
    """Write a result under its fence, and what counts; return the submission as it was before.

    A judge error counts only where no real result ever did.
    """
    status, fence = result["status"], result["fence"]
    filter_ = {"_id": submission_id, "fence": engine.at_most(fence), **guard}
    shown = {"status": status, "fence": fence, "result": result}
    counting = {**shown, "counted": {"status": status, "score": result["score"]}}
    if status != Verdict.JE:
        return _update(filter_, {"$set": counting})
    no_real_one = {"$or": [{"counted": None}, {"counted.status": Verdict.JE.value}]}
    real_one = {"counted.status": {"$gte": 0, "$ne": Verdict.JE.value}}
    before = _update({"$and": [filter_, no_real_one]}, {"$set": counting})
    return before or _update({"$and": [filter_, real_one]}, {"$set": shown})


def _update(filter_: dict[str, Any], update: dict[str, Any]) -> dict[str, Any] | None:
    return engine.submissions().find_one_and_update(
        filter_, update, BEFORE, return_document=ReturnDocument.BEFORE
    )


def _result(folded: FoldedResult, bundle: Bundle) -> dict[str, Any]:
    return {
        "status": folded.status.value,
        "score": folded.score,
        "exec_time_ms": folded.exec_time_ms,
        "memory_usage_kib": folded.memory_usage_kib,
        "outputs_blob": bundle.blob,
        "tasks": [_task(number, task, bundle) for number, task in enumerate(folded.tasks)],
    }


def _task(number: int, task: FoldedTask, bundle: Bundle) -> dict[str, Any]:
    return {
        "status": task.status.value,
        "score": task.score,
        "exec_time_ms": task.exec_time_ms,
        "memory_usage_kib": task.memory_usage_kib,
        "cases": [
            {
                "status": case.status.value,
                "exit_code": case.exit_code,
                "exec_time_ms": case.exec_time_ms,
                "memory_usage_kib": case.memory_usage_kib,
                "output_truncated": (number, index) in bundle.cut,
                **({"runs": case.runs} if case.runs > 1 else {}),
            }
            for index, case in enumerate(task.cases)
        ],
    }


def drop_outputs(before: dict[str, Any]) -> None:
    """Remove the bundle of what was there before the new result."""
    _drop(before.get("result") or {})


def _drop(result: dict[str, Any]) -> None:
    if result.get("outputs_blob") is not None:
        storage.delete(result["outputs_blob"])
