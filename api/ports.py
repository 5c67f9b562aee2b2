"""What the API needs of the domain, as types. The composition root hands in what fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Literal, Protocol

from dispatch.contract import TaskSpec


class Principal(Protocol):
    """Who is asking."""

    @property
    def admin(self) -> bool:
        """Whether the key is an admin's."""

    @property
    def username(self) -> str | None:
        """Whose key it is; None for an admin's."""


class Submitted(Protocol):
    """A submission that was taken in."""

    @property
    def submission_id(self) -> str:
        """Its id."""

    @property
    def job_id(self) -> str:
        """The id of its job."""


class ConsoleSession(Protocol):
    """A sign-in at the console."""

    @property
    def key_mark(self) -> str:
        """The start of the admin key's hash, which tells keys apart."""

    @property
    def expires_at(self) -> datetime:
        """When it ends by itself."""


class KnownFiles(Protocol):
    """The files of the programs and of the problem that runners are checked with."""

    @property
    def problem_id(self) -> int:
        """What is told as the problem's id."""

    def read_code(self, program_id: str) -> bytes | None: ...
    def read_testdata(self, sha256: str) -> bytes | None: ...


class Judge(Protocol):
    """Users, problems, homeworks, submissions. Refusals are raised as the domain's errors."""

    def principal(self, key: str) -> Principal | None: ...
    def put_user(self, name: str, *, display_name: str | None) -> bool: ...
    def create_key(self, username: str) -> str: ...
    def view_user(self, name: str) -> dict[str, Any]: ...
    def put_problem(
        self,
        problem_id: int,
        *,
        name: str,
        tasks: Sequence[TaskSpec],
        allowed_languages: Sequence[int],
    ) -> bool: ...
    def put_testdata(self, problem_id: int, file: IO[bytes]) -> tuple[bool, str]: ...
    def put_package(
        self,
        problem_id: int,
        *,
        name: str,
        tasks: Sequence[TaskSpec],
        allowed_languages: Sequence[int],
        file: IO[bytes],
    ) -> str: ...
    def open_testdata(self, problem_id: int, sha256: str) -> Iterator[bytes] | None: ...
    def view_problem(self, problem_id: int) -> dict[str, Any]: ...
    def is_ready(self, problem_id: int) -> bool: ...
    def require_problem(self, problem_id: int) -> None: ...
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
    ) -> bool: ...
    def view_homework(self, homework_id: str, *, only: str | None) -> dict[str, Any]: ...
    def pack_code(self, language: int, code: bytes) -> bytes: ...
    def submit(
        self,
        *,
        submission_id: str | None,
        username: str,
        problem_id: int,
        language: int,
        code_zip: bytes,
        may_be_early: bool,
    ) -> Submitted: ...
    def rejudge(self, submission_id: str) -> str: ...
    def cancel_submission(self, submission_id: str) -> None: ...
    def can_cancel_submission(self, submission_id: str) -> bool: ...
    def start_rejudge(
        self,
        *,
        filter: Mapping[str, Any],
        mode: Literal["replace", "preview"],
        by: str,
    ) -> dict[str, Any]: ...
    def list_rejudges(self, limit: int) -> list[dict[str, Any]]: ...
    def view_rejudge(self, rejudge_id: str) -> dict[str, Any]: ...
    def rejudge_items(
        self, rejudge_id: str, *, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]: ...
    def rejudge_students(
        self, rejudge_id: str, *, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]: ...
    def rejudge_totals(self, rejudge_id: str) -> dict[str, int]: ...
    def hold_rejudge(self, rejudge_id: str) -> None: ...
    def release_rejudge(self, rejudge_id: str) -> None: ...
    def cancel_rejudge(self, rejudge_id: str) -> None: ...
    def apply_rejudge(self, rejudge_id: str) -> None: ...
    def discard_rejudge(self, rejudge_id: str) -> None: ...
    def view_submission(self, submission_id: str) -> dict[str, Any]: ...
    def verdict_of(self, submission_id: str) -> int | None: ...
    def owner_of(self, submission_id: str) -> str: ...
    def read_code(self, submission_id: str) -> bytes: ...
    def read_output(
        self, submission_id: str, task: int, case: int, stream: Literal["stdout", "stderr"]
    ) -> bytes: ...
    def list_submissions(
        self,
        *,
        username: str | None,
        problem_id: int | None,
        status: int | None,
        limit: int,
        before: str | None,
    ) -> tuple[list[dict[str, Any]], str | None]: ...
    def export_submissions(
        self, *, username: str | None, problem_id: int | None, status: int | None
    ) -> Iterator[dict[str, Any]]: ...
    def list_homeworks(self, *, limit: int) -> list[dict[str, Any]]: ...
    def homework_settings(self, homework_id: str) -> dict[str, Any]: ...
    def standings(self, homework_id: str, students: Sequence[str]) -> Iterator[dict[str, Any]]: ...
    def start_check(self, *, repair: bool, by: str) -> bool: ...
    def last_check(self) -> dict[str, Any] | None: ...
    def start_console_session(self, key: str) -> str | None: ...
    def console_session(self, token: str) -> ConsoleSession | None: ...
    def end_console_session(self, token: str) -> None: ...
