"""What bulk rejudges need of the queue, as types. Wired by the composition root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mongo.submission import JobQueue


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    """A submission's job, as far as rejudges ask for it."""

    job_id: str
    fence: int
    waiting: bool
    done: bool
    cancelled: bool
    mark_due: bool
    preview: bool
    rejudge_id: str | None


class BulkQueue(JobQueue, Protocol):
    """The queue, with rejudges in bulk, taking them back, and putting them on hold."""

    def preview_for(
        self,
        rejudge_id: str,
        *,
        submission_id: str,
        problem_id: int,
        language: int,
        submission_fence: int,
    ) -> tuple[str, int] | None:
        """Have a finished submission judged beside what it has; None: its job is not done."""

    def jobs(self, submission_ids: Sequence[str]) -> Mapping[str, JobView]:
        """Return submission id to job, of those that have one."""

    def cancel(self, submission_id: str, job: JobView, *, note: str) -> int | None:
        """Take the rejudge back if its job is still like that; return its new fence."""

    def restored(self, submission_id: str, *, fence: int) -> None:
        """Note that the submission shows its result again."""

    def hold(self, rejudge_id: str) -> None:
        """Hand out none of the rejudge's waiting jobs."""

    def release(self, rejudge_id: str) -> None:
        """Hand them out again."""

    def held(self) -> Sequence[str]:
        """Return the rejudges on hold."""
