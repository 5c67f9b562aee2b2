"""A typed client of the submitting side, for those who hand in programs from code.

Guarantees: a submit whose outcome is unknown is never sent again before the service was asked
whether it knows the submission. To be able to ask, the client chooses the id itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError
from ulid import ULID

from runner.retry import Sleep, parse_retry_after

TIMEOUT_S = 10.0
LONG_POLL_S_MAX = 30
ASK_DELAYS_S = (1.0, 2.0, 4.0, 8.0)
SUBMITS_MAX = 4
PENDING = "PENDING"


class Submission(BaseModel):
    """A submission as the service shows it. `details` is the whole body."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    submission_id: str
    username: str
    problem_id: int
    language: int
    status: int
    verdict: str
    score: int | None = None
    exec_time_ms: int | None = None
    memory_usage_kib: int | None = None
    details: dict[str, Any]

    @property
    def is_pending(self) -> bool:
        """Whether there is no verdict yet."""
        return self.verdict == PENDING


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """The service has the submission."""

    submission_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """The service said no. `reason` is its slug (`duplicate_submission`, ...), else ''."""

    submission_id: str
    status: int
    reason: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """Neither a submit nor a question got an answer: ask again later, under the same id."""

    submission_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NoAnswer:
    """The service could not be asked. `retry_after_s` where it said when to come back."""

    detail: str
    retry_after_s: float | None = None


class UserClient:
    """One user's connection. `key` is a `uk_` or `ak_` key; `sleep(seconds)` waits."""

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url,
            transport=transport,
            timeout=TIMEOUT_S,
            headers={"Authorization": f"Bearer {key}"},
        )
        self._sleep = sleep

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(
        self,
        *,
        problem_id: int,
        language: int,
        code: bytes,
        file_name: str,
        submission_id: str | None = None,
        username: str | None = None,
    ) -> Accepted | Refused | Unknown:
        """Hand in one program: a bare source or a zip, `file_name` saying which (`main.c`).

        `username` is for admins. After an answer that never came the service is asked for the
        submission; only a plain 404 leads to another submit.
        """
        chosen = submission_id or f"sn_{ULID()}"
        fields = {
            "problem_id": str(problem_id),
            "language": str(language),
            "submission_id": chosen,
        }
        if username is not None:
            fields["username"] = username
        for number in range(SUBMITS_MAX):
            answer = self._send(
                "POST", "/submissions", data=fields, files={"code": (file_name, code)}
            )
            if isinstance(answer, httpx.Response) and answer.is_success:
                return Accepted(submission_id=chosen)
            if isinstance(answer, httpx.Response) and (number == 0 or answer.status_code != 409):
                return _refused(chosen, answer)
            # No answer, or a 409 that may well mean our own earlier submit.
            match self._ask_until_answered(chosen):
                case Submission():
                    return Accepted(submission_id=chosen)
                case Refused(status=404):
                    continue
                case Refused() as refused:
                    return refused
                case NoAnswer():
                    return Unknown(submission_id=chosen)
        return Unknown(submission_id=chosen)

    def submission(self, submission_id: str, *, wait_s: int = 0) -> Submission | Refused | NoAnswer:
        """Read a submission; the service holds its answer up to `wait_s` s for a verdict."""
        held_s = min(max(wait_s, 0), LONG_POLL_S_MAX)
        answer = self._send(
            "GET",
            f"/submissions/{quote(submission_id, safe='')}",
            params={"wait": str(held_s)} if held_s else None,
            timeout_s=held_s + TIMEOUT_S,
        )
        if isinstance(answer, NoAnswer):
            return answer
        if not answer.is_success:
            return _refused(submission_id, answer)
        payload = _json_object(answer)
        try:
            return Submission.model_validate({**payload, "details": payload})
        except ValidationError:
            return NoAnswer(detail="the answer cannot be read")

    def wait_for_verdict(
        self, submission_id: str, *, rounds_max: int = 20
    ) -> Submission | Refused | NoAnswer:
        """Ask in long polls until there is a verdict, at most `rounds_max` times.

        The last answer is returned, which may still be pending.
        """
        answer = self.submission(submission_id, wait_s=LONG_POLL_S_MAX)
        for _ in range(rounds_max - 1):
            if isinstance(answer, Refused) or (
                isinstance(answer, Submission) and not answer.is_pending
            ):
                break
            if isinstance(answer, NoAnswer):
                self._sleep(max(ASK_DELAYS_S[0], answer.retry_after_s or 0.0))
            answer = self.submission(submission_id, wait_s=LONG_POLL_S_MAX)
        return answer

    def _ask_until_answered(self, submission_id: str) -> Submission | Refused | NoAnswer:
        answer = self.submission(submission_id)
        for scheduled_s in ASK_DELAYS_S:
            if not isinstance(answer, NoAnswer):
                break
            self._sleep(max(scheduled_s, answer.retry_after_s or 0.0))
            answer = self.submission(submission_id)
        return answer

    def _send(
        self, method: str, path: str, *, timeout_s: float = TIMEOUT_S, **request: Any
    ) -> httpx.Response | NoAnswer:
        """Send once. A 5xx, 408 or 429 is no answer: a proxy may have made it up."""
        try:
            answer = self._http.request(method, path, timeout=timeout_s, **request)
        except httpx.HTTPError as error:
            return NoAnswer(detail=type(error).__name__)
        if answer.status_code >= 500 or answer.status_code in (408, 429):
            return NoAnswer(
                detail=f"answered {answer.status_code}",
                retry_after_s=parse_retry_after(answer.headers.get("Retry-After")),
            )
        return answer


def _refused(submission_id: str, answer: httpx.Response) -> Refused:
    problem = _json_object(answer)
    return Refused(
        submission_id=submission_id,
        status=answer.status_code,
        reason=str(problem.get("reason", "")),
        detail=str(problem.get("detail", "")),
    )


def _json_object(answer: httpx.Response) -> dict[str, Any]:
    """Return the body as a JSON object, or an empty one where it is none."""
    try:
        payload = answer.json()
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}
