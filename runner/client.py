"""A typed client of the runner API, for this runner and for those who write their own.

Guarantees: every answer of the service becomes a named outcome, never a bare status code;
`complete` and `abort` are resent by the protocol's rules and by no others; a request that got
no answer is never taken for one that was refused. No exception carries a token or a signed link.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import httpx
from pydantic import ValidationError

from runner.downloads import Downloaded, DownloadFailed, DownloadResult, NotModified, download
from runner.identity import Former
from runner.outcomes import (
    Beat,
    Delivery,
    NoJob,
    RegisterBody,
    Registered,
    RegistrationRefused,
    RunnerConfig,
    Unauthorized,
    Unavailable,
)
from runner.retry import REPORT_DELAYS_S, Sleep, parse_retry_after, repeat
from runner.user_client import UserClient
from runner.wire import (
    AbortReason,
    AtFault,
    CaseReport,
    JobOffer,
    UnreadableOffer,
    faults,
    parse_offer,
    tasks_to_wire,
)

__all__ = [
    "AbortReason",
    "Beat",
    "CaseReport",
    "Delivery",
    "DownloadFailed",
    "DownloadResult",
    "Downloaded",
    "JobOffer",
    "NoJob",
    "NotModified",
    "Registered",
    "RegistrationRefused",
    "RunnerClient",
    "RunnerConfig",
    "Unauthorized",
    "Unavailable",
    "UnreadableOffer",
    "UserClient",
]

TIMEOUT_S = 10.0
LONG_POLL_S_MAX = 30


class RunnerClient:
    """One runner's connection to the service. Safe to use from several threads,
    except `next_job`, which one thread calls.

    `sleep(seconds)` waits between resends; give an `Event.wait` to be able to cut waits short.
    """

    def __init__(
        self,
        base_url: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url, transport=transport, timeout=TIMEOUT_S, follow_redirects=False
        )
        self._sleep = sleep
        self._identity: Registered | None = None
        self._wish: str | None = None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def register(
        self,
        registration_token: str,
        name: str,
        languages: Sequence[int] | None = None,
        *,
        replaces: Former | None = None,
    ) -> Registered | RegistrationRefused | Unavailable:
        """Ask once for an identity; on `Registered` this client uses it from then on.

        `replaces` is who the same runner was before it crashed: what that one held is free at once.
        """
        body: dict[str, Any] = {"registration_token": registration_token, "name": name}
        if languages is not None:
            body["languages"] = list(languages)
        if replaces is not None:
            body["replaces"] = {"runner_id": replaces.runner_id, "token": replaces.token}
        answer = self._send("POST", "/runners/register", body=body)
        if isinstance(answer, Unavailable):
            return answer
        if answer.status_code in (400, 401, 403, 404, 422):
            return RegistrationRefused(detail=f"the service answered {answer.status_code}")
        if answer.status_code != httpx.codes.CREATED:
            return _unavailable(answer)
        try:
            parsed = RegisterBody.model_validate(_json(answer))
        except ValidationError as error:
            return RegistrationRefused(detail=f"the answer cannot be read: {faults(error)}")
        self._identity = Registered(
            runner_id=parsed.runner_id, token=parsed.token, config=parsed.config
        )
        return self._identity

    def heartbeat(
        self,
        active_job_ids: Iterable[str],
        *,
        languages: Sequence[int] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Beat | Unauthorized | Unavailable:
        """Renew the leases of the listed jobs. `timeout_s` bounds each step of the request.

        `languages` replaces the list given before.
        """
        body: dict[str, Any] = {
            "active_job_ids": list(active_job_ids),
            "report_lost": True,
            "report_drain": True,
        }
        if languages is not None:
            body["languages"] = list(languages)
        answer = self._send(
            "POST", self._path("heartbeat"), body=body, bearer=True, timeout_s=timeout_s
        )
        if isinstance(answer, Unavailable):
            return answer
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            return Unauthorized()
        if not answer.is_success:
            return _unavailable(answer)
        payload = _json(answer)
        told = payload if isinstance(payload, dict) else {}
        return Beat(
            lost_job_ids=frozenset(str(job_id) for job_id in told.get("lost_job_ids", [])),
            drain=told.get("drain") is True,
        )

    def next_job(
        self, *, wait_s: int = 0
    ) -> JobOffer | UnreadableOffer | NoJob | Unauthorized | Unavailable:
        """Ask for a job, letting the service hold its answer for up to `wait_s` seconds.

        Each wish has its own claim id. While a wish has no answer the next call repeats it, so
        that a job whose hand-out was lost on the way comes again under the same lease.
        """
        self._wish = self._wish or secrets.token_urlsafe(16)
        held_s = min(max(wait_s, 0), LONG_POLL_S_MAX)
        answer = self._send(
            "GET",
            self._path("next-job"),
            params={"wait": str(held_s), "claim_id": self._wish},
            bearer=True,
            timeout_s=held_s + TIMEOUT_S,
        )
        if isinstance(answer, Unavailable):
            return answer
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            return Unauthorized()
        if answer.status_code == httpx.codes.NO_CONTENT:
            self._wish = None
            return NoJob()
        offer = parse_offer(_json(answer)) if answer.status_code == httpx.codes.OK else None
        if offer is None:
            return _unavailable(answer)
        self._wish = None
        return offer

    def complete(
        self, job_id: str, tasks: Sequence[Sequence[CaseReport]], *, lease_token: str | None
    ) -> Delivery:
        """Report a job's result, resending for up to 31 s of waits."""
        body: dict[str, Any] = {"tasks": tasks_to_wire(tasks)}
        return self._deliver(job_id, "complete", body, lease_token, final={400: Delivery.INVALID})

    def abort(
        self,
        job_id: str,
        reason: AbortReason,
        *,
        lease_token: str | None,
        at_fault: AtFault | None = None,
        detail: str = "",
    ) -> Delivery:
        """Give a job back, resending for up to 31 s of waits. `detail` is for people."""
        body: dict[str, Any] = {"reason": reason.value}
        if at_fault is not None:
            body["at_fault"] = at_fault.value
        if detail:
            body["detail"] = detail
        return self._deliver(job_id, "abort", body, lease_token, final={})

    def download(
        self, url: str, sink: BinaryIO, *, bytes_max: int, etag: str | None = None
    ) -> DownloadResult:
        """Fetch a signed link into `sink`, with no credential. See `downloads.download`."""
        return download(self._http, url, sink, bytes_max=bytes_max, etag=etag, sleep=self._sleep)

    def _deliver(
        self,
        job_id: str,
        verb: str,
        body: dict[str, Any],
        lease_token: str | None,
        *,
        final: dict[int, Delivery],
    ) -> Delivery:
        if lease_token is not None:
            body["lease_token"] = lease_token
        outcomes = {404: Delivery.UNKNOWN_JOB, 409: Delivery.LEASE_LOST, **final}

        def attempt() -> Delivery | Unavailable:
            answer = self._send("PUT", self._path("jobs", job_id, verb), body=body, bearer=True)
            if isinstance(answer, Unavailable):
                return answer
            if answer.is_success:
                return Delivery.ACCEPTED
            return outcomes.get(answer.status_code) or _unavailable(answer)

        outcome = repeat(
            attempt,
            unfinished=lambda result: isinstance(result, Unavailable),
            retry_after_s=lambda result: (
                result.retry_after_s if isinstance(result, Unavailable) else None
            ),
            delays_s=REPORT_DELAYS_S,
            sleep=self._sleep,
        )
        return Delivery.GAVE_UP if isinstance(outcome, Unavailable) else outcome

    def _path(self, *parts: str) -> str:
        if self._identity is None:
            raise RuntimeError("register first")
        return "/".join(("/runners", self._identity.runner_id, *parts))

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: dict[str, Any] | None = None,
        params: dict[str, str] | None = None,
        bearer: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> httpx.Response | Unavailable:
        headers = {}
        if bearer and self._identity is not None:
            headers["Authorization"] = f"Bearer {self._identity.token}"
        try:
            return self._http.request(
                method, path, json=body, params=params, headers=headers, timeout=timeout_s
            )
        except httpx.HTTPError as error:
            # The class alone: a message of httpx may quote the address.
            return Unavailable(detail=type(error).__name__)


def _unavailable(answer: httpx.Response) -> Unavailable:
    return Unavailable(
        detail=f"answered {answer.status_code}",
        retry_after_s=parse_retry_after(answer.headers.get("Retry-After")),
    )


def _json(answer: httpx.Response) -> object:
    """Return the body as JSON, or `None` where it is none."""
    try:
        payload: object = answer.json()
    except ValueError:
        return None
    return payload
