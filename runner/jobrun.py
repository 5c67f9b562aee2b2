"""One job, from its lease to the end of its report.

Guarantees: whatever happens while judging, the job is completed, given back with a reason, or
known to be lost; a failure of the runner itself or of its machine is never a silent one, and never
a verdict.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from enum import Enum
from typing import BinaryIO, assert_never

import structlog

from runner.archive import BadZipError, read_only_entry
from runner.client import Delivery, DownloadFailed, RunnerClient
from runner.executor import Executor, judge_cases
from runner.faults import MachineFaultError
from runner.health import Health
from runner.isolation import Slot
from runner.languages import TOOLCHAINS, Toolchain
from runner.limits import MIB
from runner.process import JobStoppedError
from runner.reports import compile_error_report
from runner.testdata import TestData, TestDataCache, TestDataError
from runner.wire import AbortReason, AtFault, CaseReport, JobOffer

SOURCE_BYTES_MAX = 4 * MIB
CODE_BYTES_MAX = 8 * MIB
DETAIL_MAX = 300
"""How many characters the service keeps of why a job was given back."""
# The line comparison is the only checker there is.
CHECKERS = frozenset({"default"})

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Stop(Enum):
    """Why work on a job ends early."""

    LOST = "lost"
    DRAIN = "drain"
    # A drain that waits for nothing.
    AT_ONCE = "at_once"
    IDENTITY_LOST = "identity_lost"


class CannotPrepareError(Exception):
    """The job's code or test data cannot be had. `at_fault`: what is, where that is known."""

    def __init__(self, why: str, *, at_fault: AtFault | None = None) -> None:
        super().__init__(why)
        self.at_fault = at_fault


class CannotJudgeError(Exception):
    """The job asks for something that this runner does not have."""


class JobControl:
    """The switch by which others end a job's work. Safe to use from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._stop: Stop | None = None
        self._judging = False

    @property
    def stopped_for(self) -> Stop | None:
        """Why the job's work has to end, or `None`."""
        return self._stop

    def should_stop(self) -> bool:
        """Whether the job's work has to end."""
        return self._stop is not None

    def stop(self, reason: Stop) -> None:
        """End the job's work. The first reason stands; a drain leaves a started job alone."""
        with self._guard:
            if self._stop is None and not (reason is Stop.DRAIN and self._judging):
                self._stop = reason

    def start_judging(self) -> None:
        """Pass the point from which a drain lets the job finish. Raises JobStoppedError."""
        with self._guard:
            if self._stop is not None:
                raise JobStoppedError
            self._judging = True


class JobRunner:
    """Carries jobs through. One instance serves all slots.

    `on_unsound(language, reason)` is told when this machine is found unfit for a language;
    `why_not(language)` says why it is known to be.
    """

    def __init__(
        self,
        *,
        client: RunnerClient,
        executor: Executor,
        cache: TestDataCache,
        health: Health,
        on_unsound: Callable[[int, str], None] = lambda language, reason: None,
        why_not: Callable[[int], str | None] = lambda language: None,
    ) -> None:
        self._client = client
        self._executor = executor
        self._cache = cache
        self._health = health
        self._on_unsound = on_unsound
        self._why_not = why_not

    def run(self, offer: JobOffer, control: JobControl, slot: Slot) -> None:
        """Judge one leased job and report it. Raises nothing that judging can raise."""
        begun_at_s = self._health.now_s()
        log = _log.bind(job_id=offer.job_id, submission_id=offer.submission_id)
        try:
            tasks = self._judge(offer, control, slot, log)
        except JobStoppedError:
            self._stopped(offer, control, log)
        except CannotJudgeError as error:
            log.warning("job_rejected", error=str(error))
            self.give_back(offer.job_id, AbortReason.REJECTED, offer.lease_token)
        except (CannotPrepareError, TestDataError) as error:
            log.warning("job_not_prepared", error=str(error))
            self._health.failed(str(error), begun_at_s=begun_at_s)
            self._fail(offer, error.at_fault, str(error))
        except MachineFaultError as fault:
            log.error("machine_fault", reason=str(fault), unsound=fault.unsound)
            self._health.failed(str(fault), begun_at_s=begun_at_s)
            if fault.unsound:
                self._on_unsound(offer.language, str(fault))
            self._fail(offer, AtFault.MACHINE, str(fault))
        except Exception as error:
            # Ours to mend: told in full, and the job goes where it may fare better.
            log.exception("runner_failed_at_job")
            self._health.failed(_in_short(error), begun_at_s=begun_at_s)
            self._fail(offer, AtFault.MACHINE, _in_short(error))
        else:
            self._health.judged()
            self._report(offer, tasks, log)

    def give_back(
        self,
        job_id: str,
        reason: AbortReason,
        lease_token: str | None,
        *,
        at_fault: AtFault | None = None,
        detail: str = "",
    ) -> None:
        """Abort a job and log how that went."""
        delivery = self._client.abort(
            job_id, reason, lease_token=lease_token, at_fault=at_fault, detail=detail
        )
        _log.info("aborted", job_id=job_id, reason=reason.value, delivery=delivery.value)

    def _fail(self, offer: JobOffer, at_fault: AtFault | None, why: str) -> None:
        self.give_back(
            offer.job_id,
            AbortReason.PREP_FAILED,
            offer.lease_token,
            at_fault=at_fault,
            detail=why[:DETAIL_MAX],
        )

    def _judge(
        self,
        offer: JobOffer,
        control: JobControl,
        slot: Slot,
        log: structlog.stdlib.BoundLogger,
    ) -> list[list[CaseReport]]:
        toolchain = TOOLCHAINS.get(offer.language)
        if toolchain is None:
            raise CannotJudgeError(f"unknown language {offer.language}")
        if offer.checker not in CHECKERS:
            raise CannotJudgeError("unknown checker")
        if (reason := self._why_not(offer.language)) is not None:
            # Handed out before the service knew.
            raise MachineFaultError(f"this language is not judged here at present: {reason}")
        source = self._fetch_source(offer, toolchain)
        with (
            self._open_testdata(offer) as data,
            self._executor.open_job(toolchain, source, slot) as program,
        ):
            data.require(offer.tasks)
            error = program.compile(control.should_stop)
            log.info("compiled", accepted=error is None)
            control.start_judging()
            if error is not None:
                return compile_error_report(error.message, offer.tasks)
            tasks = judge_cases(program, offer.tasks, data, control.should_stop)
        log.info("judged", verdicts=[[case.status.value for case in cases] for cases in tasks])
        return tasks

    def _fetch_source(self, offer: JobOffer, toolchain: Toolchain) -> bytes:
        blob = io.BytesIO()
        self._fetch(offer.code_url, "code")(blob, CODE_BYTES_MAX)
        try:
            return read_only_entry(
                blob.getvalue(), toolchain.source_name, bytes_max=SOURCE_BYTES_MAX
            )
        except BadZipError as error:
            raise CannotPrepareError(f"code: {error}", at_fault=AtFault.SUBMISSION) from error

    def _open_testdata(self, offer: JobOffer) -> TestData:
        fetch = self._fetch(offer.testdata_url, "test data")
        return self._cache.open(offer.testdata_sha256, fetch)

    def _fetch(self, url: str, what: str) -> Callable[[BinaryIO, int], None]:
        def fetch(sink: BinaryIO, bytes_max: int) -> None:
            result = self._client.download(url, sink, bytes_max=bytes_max)
            if isinstance(result, DownloadFailed):
                raise CannotPrepareError(f"{what}: {result.detail}")

        return fetch

    def _stopped(
        self, offer: JobOffer, control: JobControl, log: structlog.stdlib.BoundLogger
    ) -> None:
        match control.stopped_for:
            case Stop.DRAIN | Stop.AT_ONCE:
                self.give_back(offer.job_id, AbortReason.DRAIN, offer.lease_token)
            case Stop.LOST | Stop.IDENTITY_LOST as reason:
                # The lease is another's, or will be: there is nobody to report to.
                log.warning("job_stopped", reason=reason.value)
            case None:
                log.error("job_stopped_for_no_reason")
                self.give_back(offer.job_id, AbortReason.PREP_FAILED, offer.lease_token)
            case other:
                assert_never(other)

    def _report(
        self,
        offer: JobOffer,
        tasks: list[list[CaseReport]],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        delivery = self._client.complete(offer.job_id, tasks, lease_token=offer.lease_token)
        match delivery:
            case Delivery.ACCEPTED:
                log.info("completed")
            case Delivery.LEASE_LOST | Delivery.UNKNOWN_JOB | Delivery.GAVE_UP:
                log.warning("result_not_taken", delivery=delivery.value)
            case Delivery.INVALID:
                # The lease stays with us: give it back rather than let it run out.
                log.error("result_not_taken", delivery=delivery.value)
                self.give_back(offer.job_id, AbortReason.REJECTED, offer.lease_token)
            case _:
                assert_never(delivery)


def _in_short(error: Exception) -> str:
    """Name an error without what it may quote."""
    kind = type(error).__name__
    return f"{kind}: {error.strerror}" if isinstance(error, OSError) else kind
