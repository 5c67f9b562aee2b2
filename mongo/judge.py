"""The domain as one object, with the queue and the clock it was given: what the API calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, Any

from ulid import ULID

from dispatch.contract import Language, TaskSpec
from mongo import (
    archive,
    cancelling,
    checks,
    console_session,
    export,
    homework,
    outputs,
    problem,
    rejudge_report,
    rejudging,
    submission,
    user,
)
from mongo.console_session import ConsoleSession
from mongo.homework import HomeworkSettings
from mongo.inspection import InspectedQueue, Inspector
from mongo.submission import Submitted
from mongo.user import Principal


class Judge:
    """Users, problems, homeworks and submissions. Every method may raise a `DomainError`."""

    def __init__(self, queue: InspectedQueue, now: Callable[[], datetime]) -> None:
        self._queue = queue
        self._now = now

    def principal(self, key: str) -> Principal | None:
        """Return who the key belongs to, or None."""
        return user.principal(key)

    def put_user(self, name: str, *, display_name: str | None) -> bool:
        """Create or change a user; tell whether it was created."""
        return user.put_user(name, display_name=display_name)

    def create_key(self, username: str) -> str:
        """Make a key for a user."""
        return user.create_key(username, now=self._now())

    def view_user(self, name: str) -> dict[str, Any]:
        """Return a user with the counters."""
        return user.view_user(name)

    def put_problem(
        self,
        problem_id: int,
        *,
        name: str,
        tasks: Sequence[TaskSpec],
        allowed_languages: Sequence[int],
    ) -> bool:
        """Create or replace a problem's settings; tell whether it was created."""
        return problem.put_problem(
            problem_id, name=name, tasks=tasks, allowed_languages=allowed_languages
        )

    def put_testdata(self, problem_id: int, file: IO[bytes]) -> tuple[bool, str]:
        """Store a problem's test data; return (created, SHA-256)."""
        return problem.put_testdata(problem_id, file, now=self._now())

    def put_package(
        self,
        problem_id: int,
        *,
        name: str,
        tasks: Sequence[TaskSpec],
        allowed_languages: Sequence[int],
        file: IO[bytes],
    ) -> str:
        """Create or replace a problem with its test data at once; return the data's SHA-256."""
        return problem.put_package(
            problem_id,
            name=name,
            tasks=tasks,
            allowed_languages=allowed_languages,
            file=file,
            now=self._now(),
        )

    def open_testdata(self, problem_id: int, sha256: str) -> Iterator[bytes] | None:
        """Return test data by hash, in pieces."""
        return problem.open_testdata(problem_id, sha256)

    def view_problem(self, problem_id: int) -> dict[str, Any]:
        """Return a problem's settings."""
        return problem.view_problem(problem_id)

    def is_ready(self, problem_id: int) -> bool:
        """Tell whether the problem can be judged."""
        return problem.is_ready(problem_id)

    def put_homework(
        self,
        homework_id: str,
        *,
        name: str,
        start: datetime,
        end: datetime,
        penalty: str,
        problem_ids: Sequence[int],
        students: Sequence[str],
    ) -> bool:
        """Create or replace a homework; tell whether it was created."""
        settings = HomeworkSettings(
            name=name,
            start=start,
            end=end,
            penalty=penalty,
            problem_ids=tuple(problem_ids),
            students=tuple(students),
        )
        return homework.put_homework(homework_id, settings, now=self._now())

    def view_homework(self, homework_id: str, *, only: str | None) -> dict[str, Any]:
        """Return a homework with its standings, of one student if `only` is given."""
        return homework.view_homework(homework_id, only=only)

    def require_problem(self, problem_id: int) -> None:
        """Raise NotFoundError unless there is such a problem."""
        problem.rules(problem_id)

    def pack_code(self, language: int, code: bytes) -> bytes:
        """Return the code as the zip that runners get."""
        return archive.source_zip(code, Language(language))

    def submit(
        self,
        *,
        submission_id: str | None,
        username: str,
        problem_id: int,
        language: int,
        code_zip: bytes,
        may_be_early: bool,
    ) -> Submitted:
        """Take a program in; its id is made where the client chose none."""
        return submission.submit(
            submission_id=submission_id or f"sn_{ULID()}",
            username=username,
            problem_id=problem_id,
            language=language,
            code_zip=code_zip,
            may_be_early=may_be_early,
            queue=self._queue,
            now=self._now(),
        )

    def rejudge(self, submission_id: str) -> str:
        """Have a submission judged afresh; return its job's id."""
        return submission.rejudge(submission_id, queue=self._queue)

    def cancel_submission(self, submission_id: str) -> None:
        """Take back the rejudge of one submission; its earlier result stands."""
        cancelling.cancel_rejudge_of(submission_id, queue=self._queue, note="by an admin")

    def can_cancel_submission(self, submission_id: str) -> bool:
        """Tell whether a rejudge of it is under way that can be taken back."""
        job = self._queue.jobs([submission_id]).get(submission_id)
        return cancelling.is_under_way(submission_id, job)

    def start_rejudge(
        self,
        *,
        filter: Mapping[str, Any],
        mode: rejudging.Mode,
        by: str,
    ) -> dict[str, Any]:
        """Start a bulk rejudge; return its `rejudge_id` and `total`."""
        return rejudging.start(filter, mode=mode, by=by, now=self._now())

    def list_rejudges(self, limit: int) -> list[dict[str, Any]]:
        """Return the newest bulk rejudges with their progress."""
        return rejudging.recent(limit)

    def view_rejudge(self, rejudge_id: str) -> dict[str, Any]:
        """Return a bulk rejudge with its progress and what it changes."""
        return rejudging.view(rejudge_id)

    def rejudge_items(
        self, rejudge_id: str, *, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return some of its submissions, and the next page's cursor."""
        return rejudging.page(rejudge_id, after=after, limit=limit)

    def rejudge_students(
        self, rejudge_id: str, *, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return what a preview changes for some of its students, and the next page's cursor."""
        rejudging.require(rejudge_id)
        return rejudge_report.page(rejudge_id, after=after, limit=limit)

    def rejudge_totals(self, rejudge_id: str) -> dict[str, int]:
        """Return over all its students how many gain, lose and cross 60."""
        rejudging.require(rejudge_id)
        return rejudge_report.totals(rejudge_id)

    def hold_rejudge(self, rejudge_id: str) -> None:
        """Have nothing more of it claimed until it is released."""
        rejudging.hold(rejudge_id, queue=self._queue)

    def release_rejudge(self, rejudge_id: str) -> None:
        """Have it claimed again."""
        rejudging.release(rejudge_id, queue=self._queue)

    def cancel_rejudge(self, rejudge_id: str) -> None:
        """Have what has not been claimed keep its result."""
        rejudging.cancel(rejudge_id)

    def apply_rejudge(self, rejudge_id: str) -> None:
        """Have a preview's verdicts count."""
        rejudging.apply(rejudge_id)

    def discard_rejudge(self, rejudge_id: str) -> None:
        """Drop a preview's verdicts."""
        rejudging.discard(rejudge_id)

    def view_submission(self, submission_id: str) -> dict[str, Any]:
        """Return what is shown of a submission."""
        return submission.view_submission(submission_id)

    def verdict_of(self, submission_id: str) -> int | None:
        """Return the status shown, or None if there is no such submission."""
        return submission.verdict_of(submission_id)

    def owner_of(self, submission_id: str) -> str:
        """Return whose submission it is."""
        return submission.owner_of(submission_id)

    def read_code(self, submission_id: str) -> bytes:
        """Return a submission's code as a zip."""
        return submission.read_code(submission_id)

    def read_output(
        self, submission_id: str, task: int, case: int, stream: outputs.Stream
    ) -> bytes:
        """Return what a case printed."""
        return submission.read_output(submission_id, task, case, stream)

    def list_submissions(
        self,
        *,
        username: str | None,
        problem_id: int | None,
        status: int | None,
        limit: int,
        before: str | None,
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of submissions, newest first, and where the next page starts."""
        return submission.list_submissions(
            username=username, problem_id=problem_id, status=status, limit=limit, before=before
        )

    def export_submissions(
        self, *, username: str | None, problem_id: int | None, status: int | None
    ) -> Iterator[dict[str, Any]]:
        """Yield the submissions that fit, newest first, read in pieces."""
        return export.submissions(username=username, problem_id=problem_id, status=status)

    def list_homeworks(self, *, limit: int) -> list[dict[str, Any]]:
        """Return the homeworks without their students, the latest end first."""
        return export.homeworks(limit)

    def homework_settings(self, homework_id: str) -> dict[str, Any]:
        """Return a homework without its standings."""
        return export.homework_settings(homework_id)

    def standings(self, homework_id: str, students: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the standing of each of `students`, in their order, read in pieces."""
        return export.standings(homework_id, students)

    def inspector(self, *, repair: bool) -> Inspector:
        """Return what steps through the whole database."""
        return Inspector(queue=self._queue, now=self._now, repair=repair)

    def start_check(self, *, repair: bool, by: str) -> bool:
        """Have the whole database checked in the background, unless it is; tell whether it was."""
        return checks.start(repair=repair, by=by, now=self._now())

    def last_check(self) -> dict[str, Any] | None:
        """Return how far the check in the background is, or what the last one found."""
        return checks.view()

    def start_console_session(self, key: str) -> str | None:
        """Sign in with an admin key; return the session's token, or None."""
        return console_session.start(key, now=self._now())

    def console_session(self, token: str) -> ConsoleSession | None:
        """Return the session in force under `token`, or None."""
        return console_session.find(token, now=self._now())

    def end_console_session(self, token: str) -> None:
        """Sign out."""
        console_session.end(token)
