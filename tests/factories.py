"""What tests are made of: a clock to turn, programs, test data, results, and a whole service."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from flask import Flask
from flask.testing import FlaskClient
from pymongo.database import Database
from werkzeug.datastructures import FileStorage
from werkzeug.test import TestResponse, encode_multipart

from api.services import Services
from dispatch.contract import CaseResult, HandedOut, Landed, Language, TaskSpec, Verdict
from mongo import user
from mongo.archive import source_zip
from mongo.landing import process_result
from mongo.recompute import RECOMPUTE_LEASE

ADMIN_KEY = "ak_" + "admin-of-the-tests"
REGISTRATION_TOKEN = "register-in-the-tests"
CODE = b"print(input())\n"

# Far ahead, so that the server's own clock never thinks of expiring anything.
EPOCH = datetime(2040, 1, 1, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)


class ManualClock:
    """Stands still until it is turned."""

    def __init__(self, at: datetime = EPOCH) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def packed_testdata(*case_counts: int, text: str = "1\n") -> bytes:
    """Test data that matches `case_counts`; `text` makes it other data."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for task, count in enumerate(case_counts):
            for case in range(count):
                for kind in ("in", "out"):
                    made.writestr(zipfile.ZipInfo(f"{task:02d}{case:02d}.{kind}"), text)
    return packed.getvalue()


def task_bodies(*tasks: tuple[int, int]) -> list[dict[str, int]]:
    """Tasks of a `PUT /problems` body; `tasks` are (score, case count)."""
    return [
        {
            "task_score": score,
            "memory_limit_kib": 65536,
            "time_limit_ms": 1000,
            "case_count": count,
        }
        for score, count in tasks
    ]


def case_body(status: str = "AC", **changed: Any) -> dict[str, Any]:
    """One case of a `complete`."""
    return {
        "exitCode": 0,
        "status": status,
        "stdout": f"{status}\n",
        "stderr": "",
        "execTime": 12,
        "memoryUsage": 3456,
        **changed,
    }


def result_body(*tasks: str) -> dict[str, Any]:
    """A `complete` body: per task, its cases' statuses separated by spaces."""
    return {"tasks": [[case_body(status) for status in task.split()] for task in tasks]}


def results(*tasks: str) -> list[list[CaseResult]]:
    """The same as values of the seam."""
    return [
        [
            CaseResult(
                status=Verdict[status],
                exit_code=0,
                stdout=f"{status}\n",
                stderr="",
                exec_time_ms=12,
                memory_usage_kib=3456,
            )
            for status in task.split()
        ]
        for task in tasks
    ]


def handed_out(*tasks: tuple[int, int], sha256: str = "5" * 64) -> HandedOut:
    """What a lease was given; `tasks` are (score, case count)."""
    return HandedOut(
        tasks=tuple(TaskSpec(**task) for task in task_bodies(*tasks)),
        testdata_sha256=sha256,
        checker="default",
    )


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A registered runner, as the tests play it."""

    runner_id: str
    token: str

    def path(self, rest: str) -> str:
        return f"/runners/{self.runner_id}/{rest}"


@dataclass(kw_only=True)
class Service:
    """The service under test, and its people. Every answer is checked for its form."""

    app: Flask
    clock: ManualClock
    database: Database[dict[str, Any]]
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def client(self) -> FlaskClient:
        return self.app.test_client()

    @property
    def services(self) -> Services:
        found: Services = self.app.extensions["judge_dispatch"]
        return found

    def call(
        self,
        method: str,
        path: str,
        *,
        key: str | None = ADMIN_KEY,
        may_fail: bool = False,
        **sent: Any,
    ) -> TestResponse:
        """Ask; an error must be a problem document, and a 5xx is one only where expected."""
        headers = dict(sent.pop("headers", {}))
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        answer = self.client.open(path, method=method, headers=headers, **sent)
        if answer.status_code >= 400:
            check_problem(answer)
        if answer.status_code >= 500 and not may_fail:
            raise AssertionError(f"{method} {path}: {answer.status} {answer.text}")
        return answer

    def ok(self, method: str, path: str, **sent: Any) -> Any:
        """Ask, expect a success, and return its JSON (None where there is no body)."""
        answer = self.call(method, path, **sent)
        assert answer.status_code < 400, (method, path, answer.text)
        return answer.get_json() if answer.data else None

    # -- people and things ---------------------------------------------------------------

    def user(self, name: str) -> str:
        """Create the user and return a key."""
        with self.app.app_context():
            self.services.judge.put_user(name, display_name=None)
            self.keys[name] = user.create_key(name, now=self.clock())
        return self.keys[name]

    def problem(self, problem_id: int, *tasks: tuple[int, int], text: str = "1\n") -> str:
        """Create a problem that is ready; return its test data's SHA-256."""
        tasks = tasks or ((100, 1),)
        judge = self.services.judge
        judge.put_problem(
            problem_id,
            name=f"problem {problem_id}",
            tasks=[TaskSpec(**task) for task in task_bodies(*tasks)],
            allowed_languages=[0, 1, 2],
        )
        packed = packed_testdata(*(count for _, count in tasks), text=text)
        _, sha256 = judge.put_testdata(problem_id, io.BytesIO(packed))
        return sha256

    def homework(
        self,
        homework_id: str,
        problem_ids: Sequence[int],
        students: Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        penalty: str = "score = 0",
    ) -> None:
        """Create or change a homework; by default it is under way for a week."""
        self.services.judge.put_homework(
            homework_id,
            name=homework_id,
            start=start or EPOCH - DAY,
            end=end or EPOCH + 7 * DAY,
            penalty=penalty,
            problem_ids=problem_ids,
            students=students,
        )

    def submit(
        self, username: str, problem_id: int, submission_id: str | None = None, *, language: int = 2
    ) -> str:
        """Hand something in; return the submission's id."""
        taken_in = self.services.judge.submit(
            submission_id=submission_id,
            username=username,
            problem_id=problem_id,
            language=language,
            code_zip=source_zip(CODE, Language(language)),
            may_be_early=True,
        )
        return taken_in.submission_id

    def submit_over_http(self, key: str | None, **fields: Any) -> TestResponse:
        """`POST /submissions`; `code` is a file's bytes, or None to leave it out."""
        code, may_fail = fields.pop("code", CODE), fields.pop("may_fail", False)
        form: dict[str, Any] = {name: str(value) for name, value in fields.items()}
        if code is not None:
            form["code"] = FileStorage(io.BytesIO(code), filename="main.py")
        return self.post_form(key, form, may_fail=may_fail)

    def post_form(
        self, key: str | None, form: dict[str, Any], *, may_fail: bool = False
    ) -> TestResponse:
        """`POST /submissions` with any multipart form."""
        boundary, data = encode_multipart(form)
        media_type = f'multipart/form-data; boundary="{boundary}"'
        return self.call(
            "POST",
            "/submissions",
            key=key,
            may_fail=may_fail,
            data=data,
            headers={"Content-Type": media_type},
        )

    # -- judging over HTTP ---------------------------------------------------------------

    def runner(self, name: str = "runner", **wish: Any) -> Runner:
        """Register a runner."""
        body = {"registration_token": REGISTRATION_TOKEN, "name": name, **wish}
        answer = self.ok("POST", "/runners/register", key=None, json=body)
        return Runner(runner_id=answer["runner_id"], token=answer["token"])

    def claim(self, runner: Runner) -> Any:
        """Ask for a job; None: there is none."""
        return self.ok("GET", runner.path("next-job"), key=runner.token)

    def complete(self, runner: Runner, job_id: str, *tasks: str, **call: Any) -> TestResponse:
        """Report a result: per task, its cases' statuses."""
        path = runner.path(f"jobs/{job_id}/complete")
        return self.call("PUT", path, key=runner.token, json=result_body(*tasks), **call)

    def judge(self, runner: Runner, submission_id: str, *tasks: str) -> None:
        """Claim the job, which must be this submission's, and land its result."""
        payload = self.claim(runner)
        assert payload is not None
        assert payload["submission_id"] == submission_id
        assert self.complete(runner, payload["job_id"], *tasks).status_code == 204

    def sweep(self) -> None:
        """Do all of what polls do on the side, after what anybody was at has had its time."""
        self.clock.advance(RECOMPUTE_LEASE.total_seconds())
        maintenance: Any = self.services.maintain
        maintenance.run()

    # -- landing without a queue ---------------------------------------------------------

    def land(
        self,
        submission_id: str,
        *tasks: str,
        job_id: str = "jb_1",
        fence: int = 2,
        given: HandedOut | None = None,
    ) -> Landed:
        """Call `process_result`; without `tasks` it is a judge error."""
        if tasks and given is None:
            count = len(tasks)
            shares = [100 // count] * (count - 1)
            scores = [*shares, 100 - sum(shares)]
            counts = [len(task.split()) for task in tasks]
            given = handed_out(*zip(scores, counts, strict=True))
        # A landing's fence is its job's.
        self.database["jobs"].update_one({"_id": submission_id}, {"$max": {"fence": fence}})
        return process_result(
            submission_id=submission_id,
            job_id=job_id,
            fence=fence,
            tasks=results(*tasks) if tasks else None,
            handed_out=given,
            now=self.clock,
        )

    # -- looking -------------------------------------------------------------------------

    def view(self, submission_id: str) -> dict[str, Any]:
        return self.services.judge.view_submission(submission_id)

    def view_job(self, submission_id: str) -> dict[str, Any]:
        """The raw job document."""
        found = self.database["jobs"].find_one({"_id": submission_id})
        assert found is not None, submission_id
        return found

    def counters(self, username: str) -> tuple[int, int, list[int]]:
        """(submission, AC_submission, AC_problem_ids)."""
        kept = self.services.judge.view_user(username)
        return kept["submission"], kept["AC_submission"], kept["AC_problem_ids"]

    def standing(self, homework_id: str, username: str, problem_id: int) -> Any:
        """The student's entry, or None while there is none."""
        homework = self.services.judge.view_homework(homework_id, only=None)
        return homework["student_status"].get(username, {}).get(str(problem_id))

    def url(self, *parts: object) -> str:
        """A path whose parts are quoted."""
        return "/" + "/".join(quote(str(part), safe="") for part in parts)


def check_problem(answer: TestResponse) -> dict[str, Any]:
    """Check that an error is a problem document, and return it."""
    assert answer.content_type == "application/problem+json", answer.content_type
    problem: dict[str, Any] = answer.get_json(force=True)
    assert set(problem) == {"type", "title", "status", "detail", "reason"}, problem
    assert problem["status"] == answer.status_code
    assert problem["reason"]
    assert problem["reason"] == problem["reason"].lower().replace(" ", "_")
    assert "Traceback" not in problem["detail"]
    return problem
