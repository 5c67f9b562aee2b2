"""The runner API: register, heartbeat, next-job, complete, abort, and the files of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

import structlog
from flask import Blueprint, Response, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from api import body, waiting
from api.auth import require_runner, same_secret
from api.errors import ProblemError, invalid, unauthorized, unavailable
from api.links import Kind, Link
from api.schemas import (
    AbortBody,
    CaseBody,
    CompleteBody,
    HeartbeatAnswer,
    HeartbeatBody,
    JobPayload,
    NextJobQuery,
    RegisterBody,
    Registered,
    ReplacedRunner,
)
from api.services import services
from api.spec import describe
from dispatch import checks
from dispatch import job as verbs
from dispatch.checks import PROBATION_WAIT_S, Check
from dispatch.contract import CaseResult, HandedOut, Verdict
from dispatch.job import Ended
from dispatch.records import Job
from dispatch.replacing import replace_runner
from dispatch.states import HELD
from dispatch.wakeup import Interest

COMPLETE_BYTES_MAX = 64 * 1024 * 1024
DETAIL_MAX = 300
"""How many characters of a runner's reason are kept."""
TAG = "runners"
ENDED_PROBLEMS = {404: ["unknown_job"], 409: ["lease_lost"], 503: ["landing_in_flight"]}
LINK_REASONS = ["link_invalid", "link_expired"]
CHECK_MARK = "check:"
"""What the object of a check's link begins with. No submission's id and no hash holds a colon."""

log = structlog.get_logger("api")
runners = Blueprint("runners", __name__, url_prefix="/runners")
files = Blueprint("files", __name__, url_prefix="/files")


@runners.post("/register")
@describe(
    TAG,
    body=RegisterBody,
    answers={201: Registered},
    key=False,
    problems={401: ["unauthorized"], 429: ["too_many_failures"]},
)
def register() -> ResponseReturnValue:
    """Register a runner. The token in the answer is shown once."""
    settings = services().settings
    expected = settings.runner_registration_token
    if not expected:
        raise unauthorized("registration is closed")
    services().guesses.require_left("register", request.remote_addr)
    fields = body.json_object()
    given = fields.get("registration_token")
    if isinstance(given, str) and not same_secret(given, expected):
        services().guesses.failed("register", request.remote_addr)
        raise unauthorized("the registration token is not valid")
    wish = body.validated(RegisterBody, fields)
    if wish.replaces is not None:
        _replace(wish.replaces)
    runner, token = services().queue.runners.register(
        name=wish.name,
        languages=None if wish.languages is None else tuple(sorted(set(wish.languages))),
        now=services().now(),
    )
    log.info("runner_registered", runner_id=runner.runner_id, name=runner.name)
    answer = {
        "runner_id": runner.runner_id,
        "token": token,
        "config": {
            "heartbeat_interval_sec": _number(settings.heartbeat_interval_s),
            "poll_interval_sec": _number(settings.poll_interval_s),
            "max_concurrent_jobs": settings.max_concurrent_jobs,
        },
    }
    return jsonify(answer), 201


def _replace(former: ReplacedRunner) -> None:
    """End the leases of the same runner before it crashed, and revoke that identity.

    Raises:
        ProblemError: 401, it has never been that runner, or no longer is; nothing was changed.
    """
    if not replace_runner(services().queue, former.runner_id, former.token, now=services().now):
        services().guesses.failed("register", request.remote_addr)
        raise unauthorized("replaces: the token is not that runner's, or it is revoked")
    services().wakeup.notify()


def _number(value_s: float) -> float:
    """Return whole seconds as a whole number: runners in the field read an integer there."""
    return int(value_s) if value_s == int(value_s) else value_s


@runners.post("/<rn>/heartbeat")
@describe(TAG, body=HeartbeatBody, answers={200: HeartbeatAnswer, 204: None})
def heartbeat(rn: str) -> ResponseReturnValue:
    """Renew the leases of the listed jobs that this runner holds."""
    runner = require_runner(rn, seen=True)
    beat = body.parse(HeartbeatBody)
    if beat.languages is not None:
        services().queue.runners.offer(runner, beat.languages)
    checked = checks.renew(services().queue, runner, beat.active_job_ids, now=services().now)
    listed = [job_id for job_id in beat.active_job_ids if job_id not in checked]
    holds_all = verbs.renew_leases(services().queue, runner.runner_id, listed, now=services().now)
    answer: dict[str, object] = {}
    if beat.report_lost:
        answer["lost_job_ids"] = (
            [] if holds_all else verbs.lost_jobs(services().queue, runner.runner_id, listed)
        )
    if beat.report_drain:
        answer["drain"] = runner.drain is not None
    return jsonify(answer) if answer else ("", 204)


@runners.get("/<rn>/next-job")
@describe(TAG, query=NextJobQuery, answers={200: JobPayload, 204: None})
def next_job(rn: str) -> ResponseReturnValue:
    """Lease the next job, or say that there is none."""
    runner = require_runner(rn)
    wish = body.parse_query(NextJobQuery)
    if request.method == "HEAD":
        return "", 204  # a safe method leases nothing
    waited = False

    def look() -> dict[str, object] | None:
        nonlocal waited
        services().maintain()
        # Much may have happened to a runner that waited.
        current = services().queue.runners.get(runner.runner_id) if waited else runner
        if current is None:
            raise unauthorized("the runner was revoked while it waited")
        waited = True
        queue, now = services().queue, services().now
        check = checks.next_check(queue, current, claim_id=wish.claim_id, now=now)
        if check is not None:
            return _check_payload(check, runner.runner_id)
        job = verbs.claim_next_job(
            queue,
            checks.as_proven(queue, current),
            hand_out=services().hand_out,
            now=now,
            claim_id=wish.claim_id,
        )
        return None if job is None else _job_payload(job, runner.runner_id)

    # One that is given nothing must not take the notices of those that are.
    proven = checks.as_proven(services().queue, runner)
    languages = () if runner.gets_nothing else proven.languages
    interest = Interest(runner_id=runner.runner_id, languages=languages)
    wait_s = wish.wait
    if checks.on_probation(services().queue, runner):
        wait_s = min(wait_s, PROBATION_WAIT_S)
    payload = waiting.hold_for_job(look, wait_s, interest)
    return ("", 204) if payload is None else jsonify(payload)


def _job_payload(job: Job, runner_id: str) -> dict[str, object]:
    handed_out = job.handed_out
    if handed_out is None:
        raise RuntimeError(f"job {job.job_id} is leased with nothing handed out")
    return _payload(
        job_id=job.job_id,
        submission_id=job.submission_id,
        problem_id=job.problem_id,
        language=job.language,
        attempt=job.attempts,
        lease_token=job.lease_token,
        handed_out=handed_out,
        code_url=_link("code", runner_id, job.job_id, job.submission_id),
        testdata_url=_link("testdata", runner_id, job.job_id, handed_out.testdata_sha256),
    )


def _check_payload(check: Check, runner_id: str) -> dict[str, object]:
    """Return what a job of the service's own problem looks like: like any other."""
    given, program = check.open, check.program
    sha256 = program.handed_out.testdata_sha256
    return _payload(
        job_id=given.job_id,
        submission_id=given.submission_id,
        problem_id=services().known_files.problem_id,
        language=program.language,
        attempt=1,
        lease_token=given.lease_token,
        handed_out=program.handed_out,
        code_url=_link("code", runner_id, given.job_id, CHECK_MARK + program.program_id),
        testdata_url=_link("testdata", runner_id, given.job_id, CHECK_MARK + sha256),
    )


def _payload(
    *,
    job_id: str,
    submission_id: str,
    problem_id: int,
    language: int,
    attempt: int,
    lease_token: str | None,
    handed_out: HandedOut,
    code_url: str,
    testdata_url: str,
) -> dict[str, object]:
    return {
        "job_id": job_id,
        "submission_id": submission_id,
        "problem_id": problem_id,
        "language": language,
        "code_url": code_url,
        "checker": handed_out.checker,
        "tasks": [
            {
                "taskScore": task.task_score,
                "memoryLimit": task.memory_limit_kib,
                "timeLimit": task.time_limit_ms,
                "caseCount": task.case_count,
            }
            for task in handed_out.tasks
        ],
        "attempt": attempt,
        "lease_token": lease_token,
        "testdata_url": testdata_url,
        "testdata_sha256": handed_out.testdata_sha256,
    }


def _link(kind: Kind, runner_id: str, job_id: str, object_: str) -> str:
    token = services().links.sign(
        Link(kind=kind, runner_id=runner_id, job_id=job_id, object=object_)
    )
    base = services().settings.public_url or request.host_url.rstrip("/")
    return base + url_for(f"files.{kind}", token=token)


@runners.put("/<rn>/jobs/<jb>/complete")
@describe(
    TAG,
    body=CompleteBody,
    answers={204: None},
    problems={400: ["invalid_result"], **ENDED_PROBLEMS},
)
def complete(rn: str, jb: str) -> ResponseReturnValue:
    """Land a result. At most 64 MiB of JSON, else 413; each output is kept up to 1 MiB."""
    runner = require_runner(rn)
    result = body.parse(CompleteBody, reason="invalid_result", bytes_max=COMPLETE_BYTES_MAX)
    queue = services().queue
    tasks = [[_case(case) for case in cases] for cases in result.tasks]
    if checks.concerns(runner, jb):
        ended = checks.complete(
            queue, runner, jb, tasks, lease_token=result.lease_token, now=services().now
        )
        return _ended(ended, jb, success=204)
    ended = verbs.complete_job(
        queue,
        runner.runner_id,
        jb,
        tasks,
        process_result=services().process_result,
        now=services().now,
        lease_token=result.lease_token,
        troubled=bool(runner.troubles),
        set_aside=runner.set_aside is not None,
    )
    services().feed.landed()
    if ended is Ended.LANDED:
        checks.landed(queue, runner, jb, tasks)
    if ended is Ended.UNKNOWN_JOB:
        ended = checks.late_word(queue, runner.runner_id, jb)
    return _ended(ended, jb, success=204)


def _case(case: CaseBody) -> CaseResult:
    return CaseResult(
        status=Verdict[case.status],
        exit_code=case.exitCode,
        stdout=case.stdout,
        stderr=case.stderr,
        exec_time_ms=case.execTime,
        memory_usage_kib=case.memoryUsage,
        output_truncated=case.outputTruncated,
        runs=case.runs,
    )


@runners.put("/<rn>/jobs/<jb>/abort")
@describe(TAG, body=AbortBody, answers={202: None}, problems=ENDED_PROBLEMS)
def abort(rn: str, jb: str) -> ResponseReturnValue:
    """Give a job back."""
    runner = require_runner(rn)
    wish = body.parse(AbortBody)
    queue = services().queue
    if checks.concerns(runner, jb):
        ended = checks.abort(
            queue, runner, jb, wish.reason, lease_token=wish.lease_token, now=services().now
        )
        return _ended(ended, jb, success=202)
    ended = verbs.abort_job(
        queue,
        runner.runner_id,
        jb,
        wish.reason,
        process_result=services().process_result,
        now=services().now,
        lease_token=wish.lease_token,
        set_aside=runner.set_aside is not None,
        at_fault=wish.at_fault,
        detail=wish.detail[:DETAIL_MAX],
    )
    services().wakeup.notify()
    if ended is Ended.UNKNOWN_JOB and checks.late_word(queue, runner.runner_id, jb) is not ended:
        ended = Ended.LEASE_LOST
    return _ended(ended, jb, success=202)


def _ended(ended: Ended, job_id: str, *, success: int) -> ResponseReturnValue:
    match ended:
        case (
            Ended.LANDED
            | Ended.ALREADY_LANDED
            | Ended.GIVEN_BACK
            | Ended.ALREADY_GIVEN_BACK
            | Ended.EXHAUSTED
            | Ended.REPLACED
        ):
            return "", success
        case Ended.IN_FLIGHT:
            raise unavailable("landing_in_flight", "this runner's landing of the job is under way")
        case Ended.LEASE_LOST:
            raise ProblemError(409, "lease_lost", "this runner's lease on the job is over")
        case Ended.UNKNOWN_JOB:
            raise ProblemError(404, "unknown_job", f"there is no job {job_id[:100]!a}")
        case _:
            assert_never(ended)


@files.get("/code/<token>", endpoint="code")
@describe(
    TAG,
    answers={200: None},
    streams="application/zip",
    key=False,
    problems={403: LINK_REASONS, 404: ["unknown_submission"]},
)
def code(token: str) -> ResponseReturnValue:
    """Send the code of a leased job, as a zip."""
    link, held = _in_force(token, "code")
    data: bytes | None
    if held is None:
        data = services().known_files.read_code(link.object)
        if data is None:
            raise ProblemError(404, "unknown_submission", "this program is gone")
    else:
        data = services().judge.read_code(link.object)
    return Response(data, content_type="application/zip")


@files.get("/testdata/<token>", endpoint="testdata")
@describe(
    TAG,
    answers={200: None, 304: None},
    streams="application/zip",
    key=False,
    problems={403: LINK_REASONS, 404: ["unknown_testdata"]},
)
def testdata(token: str) -> ResponseReturnValue:
    """Send the test data handed out with a lease, as a zip, with its SHA-256 as `ETag`."""
    link, held = _in_force(token, "testdata")
    response: Response
    if link.object in request.if_none_match:
        response = Response(status=304)
    else:
        pieces = _testdata(link.object, held)
        if pieces is None:
            raise ProblemError(404, "unknown_testdata", "this test data is gone")
        response = Response(pieces, content_type="application/zip")
    response.set_etag(link.object)
    return response


def _testdata(sha256: str, held: Job | None) -> Iterator[bytes] | None:
    if held is not None:
        return services().judge.open_testdata(held.problem_id, sha256)
    data = services().known_files.read_testdata(sha256)
    return None if data is None else iter((data,))


def _in_force(token: str, kind: Kind) -> tuple[Link, Job | None]:
    """Return the link, and the job whose lease it belongs to, if that is in force.

    None in place of the job: it is a check's, and the link's object is without its mark.
    """
    if len(token) > 2000:
        raise invalid("token: is too long")
    link = services().links.read(token, kind)
    if link.object.startswith(CHECK_MARK):
        runner = services().queue.runners.get(link.runner_id)
        if runner is None or checks.held(runner, link.job_id, services().now()) is None:
            raise ProblemError(403, "link_invalid", "this link's lease is over")
        return replace(link, object=link.object.removeprefix(CHECK_MARK)), None
    jobs = services().queue.jobs
    job = jobs.by_job_id(link.job_id)
    if not _is_held(job, link.runner_id):
        # A runner gives up a job whose files it is refused, so that is not said without proof.
        job, _ = jobs.confirmed(link.job_id)
    if (
        job is None
        or not _is_held(job, link.runner_id)
        or services().queue.runners.is_revoked(link.runner_id)
    ):
        raise ProblemError(403, "link_invalid", "this link's lease is over")
    return link, job


def _is_held(job: Job | None, runner_id: str) -> bool:
    return job is not None and job.state in HELD and job.leased_by == runner_id
