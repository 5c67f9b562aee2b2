"""The composition root: the one place that knows both the queue and the domain.

Guarantees: `create_app` either returns a service that can work or says in one line why not. The
database client is made here, so it is made after a server's fork.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import click
import structlog
from flask import Flask, request
from flask.json.provider import DefaultJSONProvider
from mongoengine.errors import OperationError
from pymongo.database import Database
from pymongo.errors import PyMongoError
from werkzeug.middleware.proxy_fix import ProxyFix

import api.errors
import api.metrics_port
import api.paths
import api.services
import cli
import console.wiring
import logs
from api.admin_api import admin
from api.export_api import exports
from api.guesses import Guesses
from api.links import Links
from api.ops_api import ops
from api.rejudge_api import rejudging as rejudge_api
from api.runner_api import files, runners
from api.services import Services, Waiters
from api.submission_api import submissions
from commands.telling import TryAgain, Unusable
from dispatch import books
from dispatch import checks as runner_checks
from dispatch import job as verbs
from dispatch.clock import Clock, ServerClock, system_clock
from dispatch.contract import ProcessResult
from dispatch.events import count, emit
from dispatch.feed import Feed, change_stream, is_free
from dispatch.lease import LeaseRules
from dispatch.queue import Queue, open_queue
from dispatch.retention import retire_jobs
from dispatch.wakeup import Wakeup
from domain_queue import DomainQueue
from housekeeping import Housekeeping
from local import kept_secret_key, start_store, store_uri
from mongo import checks, console_session, engine, index_check, problem, rejudging, storage, user
from mongo.cancelling import bring_back
from mongo.embedded import EmbeddedError
from mongo.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from mongo.judge import Judge
from mongo.known_programs import KnownFiles, known_programs
from mongo.landing import process_result
from mongo.recompute import RecomputeContendedError
from mongo.stranded import Stranded
from mongo.submission import keep_fences, mark_rejudged
from mongo.sweep import Sweeper
from settings import IN_PROCESS_URI, Settings, SettingsError, load_settings

log = structlog.get_logger("app")

MAINTAIN_EVERY = timedelta(seconds=1)
TIDY_EVERY = timedelta(seconds=30)
MARKS_MAX = 100

DOMAIN_ERRORS: dict[type[Exception], int] = {
    NotFoundError: 404,
    InvalidError: 400,
    ForbiddenError: 403,
    ConflictError: 409,
}


class Maintenance:
    """What polls do on the side: finish what crashes left, each kind at its own pace.

    One request of a process does it at a time; the others pass by.
    """

    def __init__(
        self,
        queue: Queue,
        domain_queue: DomainQueue,
        land: ProcessResult,
        now: Clock,
        job_retention: timedelta | None = None,
    ) -> None:
        self._queue = queue
        self._job_retention = job_retention
        self._domain_queue = domain_queue
        self._land = land
        self._now = now
        self._sweeper = Sweeper()
        self._stranded = Stranded(domain_queue)
        self._busy = threading.Lock()
        self._next = self._next_tidy = datetime.min.replace(tzinfo=UTC)

    def __call__(self) -> None:
        """Do what is due. Failures are logged: the poll that came by is not to blame."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            now = self._now()
            if now >= self._next:
                self._next = now + MAINTAIN_EVERY
                self._each(self._sweeps())
            if now >= self._next_tidy:
                self._next_tidy = now + TIDY_EVERY
                self._each(self._tidyings())
        finally:
            self._busy.release()

    def run(self) -> None:
        """Do everything now, whatever the pace.

        Raises:
            PyMongoError: the database went away; what is left is done by a later call.
        """
        for step in (*self._sweeps(), *self._tidyings(), self.advance):
            with engine.in_order():
                step()

    def advance(self) -> bool:
        """Move on by one step what takes long; tell whether there is more to do at once."""
        more = self.advance_rejudges()
        with engine.in_order():
            return checks.advance(queue=self._domain_queue, now=self._now) or more

    def advance_rejudges(self) -> bool:
        """Move bulk rejudges on by one step; tell whether there is more to do at once.

        Not on the side of a poll: one step is hundreds of writes.
        """
        return rejudging.advance(queue=self._domain_queue, now=self._now)

    def _each(self, steps: Sequence[Callable[[], object]]) -> None:
        """Do each step, whatever becomes of the others: one that fails holds up nothing else."""
        for step in steps:
            try:
                with engine.in_order():
                    step()
            except Exception:
                count("maintenance_failed")
                log.exception("maintenance_failed", step=getattr(step, "__name__", str(step)))

    def _sweeps(self) -> Sequence[Callable[[], object]]:
        return (
            self._land_judge_errors,
            self._mark_rejudged,
            self._bring_back_cancelled,
            self._right_waiting,
            self._finish_homeworks,
        )

    def _tidyings(self) -> Sequence[Callable[[], object]]:
        return (
            self._right_open,
            self._drop_blobs,
            self._record_sample,
            self._retire_jobs,
            self._queue.recheck_unreadable,
        )

    def _land_judge_errors(self) -> None:
        verbs.sweep(self._queue, process_result=self._land, now=self._now)

    def _mark_rejudged(self) -> None:
        for job in self._queue.jobs.marks_due(MARKS_MAX):
            fence = job.mark_due or job.fence
            if mark_rejudged(
                job.submission_id, job_id=job.job_id, fence=fence, queue=self._domain_queue
            ):
                emit("mark_repaired", submission_id=job.submission_id, fence=fence)

    def _bring_back_cancelled(self) -> None:
        for job in self._queue.jobs.restores_due(MARKS_MAX):
            fence = job.restore_due or job.fence
            bring_back(job.submission_id, fence=fence, queue=self._domain_queue)
            emit("result_repaired", submission_id=job.submission_id, fence=fence)

    def _right_waiting(self) -> None:
        _tell("missing_jobs_enqueued", self._stranded.right_waiting())

    def _right_open(self) -> None:
        self._stranded.right_open()

    def _finish_homeworks(self) -> None:
        _tell("homeworks_finished", self._sweeper.finish_homeworks(now=self._now()))

    def _drop_blobs(self) -> None:
        _tell("blobs_dropped", self._sweeper.drop_blobs(now=self._now()))

    def _retire_jobs(self) -> None:
        if self._job_retention is not None:
            retire_jobs(
                self._queue,
                done_before=self._now() - self._job_retention,
                keep_fences=keep_fences,
            )

    def _record_sample(self) -> None:
        books.record_sample(self._queue, self._now())


def _tell(event: str, finished: int) -> None:
    """Say that so many leftovers were finished, if any were."""
    if finished:
        emit(event, count=finished)


class Preparation:
    """Indexes and the first admin key: at the start, or as soon as the database is there.

    A server must not end because its database is away: a worker that cannot boot takes all the
    others of its host with it.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._lock = threading.Lock()
        self._done = False
        self._was_away = False

    def at_start(self) -> None:
        """Prepare now, if the database is there.

        Raises:
            PyMongoError: it is not, and this is a command, which has nothing to wait for.
        """
        try:
            self.ensure()
        except PyMongoError as error:
            if click.get_current_context(silent=True) is not None:
                raise
            self._was_away = True
            count("database_away_at_start")
            log.error("database_away_at_start", error=type(error).__name__)

    def ensure(self) -> None:
        """Prepare unless that has been done.

        Raises:
            PyMongoError: the database is not there.
        """
        if self._done:
            return
        with self._lock:
            if not self._done:
                self._prepare()
                self._done = True
                if self._was_away:
                    emit("database_back")

    def before_request(self) -> None:
        """Serve nothing on an unprepared database but the word on how it is."""
        if request.blueprint != ops.name:
            self.ensure()


class _Json(DefaultJSONProvider):
    """JSON with times as RFC 3339, UTC, milliseconds."""

    sort_keys = False

    @staticmethod
    def default(o: Any) -> Any:
        """Encode what the json module cannot."""
        if isinstance(o, datetime):
            return o.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return DefaultJSONProvider.default(o)


def create_app(settings: Settings | None = None, *, clock: Clock | None = None) -> Flask:
    """Wire the service. `clock` replaces the database server's, for tests.

    Raises:
        SettingsError: a setting is wrong.
        EmbeddedError: no `MONGODB_URI` is set and the embedded server does not start.
        click.ClickException: instead of these, and where the database is away, on the command
            line: one line says it all. A server starts without its database and waits for it.
    """
    try:
        return _wired(settings or load_settings(), clock)
    except (SettingsError, EmbeddedError, PyMongoError) as error:
        if click.get_current_context(silent=True) is None:
            raise
        refusal = Unusable if isinstance(error, SettingsError) else TryAgain
        raise refusal(" ".join(str(error).split())) from None


def _wired(settings: Settings, clock: Clock | None) -> Flask:
    logs.configure(settings.log_level)
    if not settings.runner_registration_token:
        log.warning("registration_closed", why="RUNNER_REGISTRATION_TOKEN is not set")
    if settings.mongodb_uri is None:
        server = start_store(settings.data_dir)
        settings = settings.model_copy(
            update={
                "mongodb_uri": store_uri(server),
                "secret_key": settings.secret_key or kept_secret_key(settings.data_dir),
            }
        )
    app = Flask("judge", static_folder=None)
    app.url_map.merge_slashes = False
    api.paths.install(app)
    app.json = _Json(app)
    app.config["MAX_CONTENT_LENGTH"] = 2 * 1024 * 1024
    trust_proxies(app, settings.trusted_proxies)
    if settings.inline_bytes_max is not None:
        storage.INLINE_BYTES_MAX = settings.inline_bytes_max
    database = _connect(settings)
    in_process = settings.mongodb_uri == IN_PROCESS_URI
    now = clock or (system_clock if in_process else ServerClock(database.client))
    queue = open_queue(
        database,
        rules=LeaseRules(
            lease_ttl_s=settings.lease_ttl_s,
            max_attempts=settings.max_attempts,
            max_concurrent_jobs=settings.max_concurrent_jobs,
            retry_pauses_s=settings.retry_pauses_s,
            give_up_s=settings.give_up_s,
        ),
        alive_s=2 * settings.heartbeat_interval_s + settings.poll_interval_s,
        known_programs=known_programs() if settings.runner_checks == "on" else (),
    )
    prepare = Preparation(partial(_prepare, settings, database, queue, now))
    prepare.at_start()
    app.before_request(prepare.before_request)
    api.services.install(app, _services(settings, database, queue, now, prepare))
    api.errors.install(
        app,
        DOMAIN_ERRORS,
        database_errors=(OperationError,),
        contended_errors=(RecomputeContendedError,),
    )
    api.metrics_port.install(app, settings.metrics_port)
    for blueprint in (runners, files, submissions, exports, admin, rejudge_api, ops):
        app.register_blueprint(blueprint)
    console.wiring.install(app, DOMAIN_ERRORS)
    for command in cli.COMMANDS:
        app.cli.add_command(command)
    return app


def trust_proxies(app: Flask, count: int) -> None:
    """Take the client's address and scheme from what the last `count` proxies wrote."""
    if count:
        # The proxy nearest to the service writes the last entry; what came before is hearsay.
        app.wsgi_app = ProxyFix(  # type: ignore[method-assign]
            app.wsgi_app, x_for=count, x_proto=count
        )


def _connect(settings: Settings) -> Database[dict[str, Any]]:
    if settings.mongodb_uri is None or settings.mongodb_uri == IN_PROCESS_URI:
        return engine.connect_in_process()
    return engine.connect(settings.mongodb_uri)


def _services(
    settings: Settings,
    database: Database[dict[str, Any]],
    queue: Queue,
    now: Clock,
    prepare: Preparation,
) -> Services:
    in_process = settings.mongodb_uri == IN_PROCESS_URI
    domain_queue = DomainQueue(queue, now)
    land = partial(process_result, now=now, contradicted=partial(runner_checks.contradicted, queue))
    days = settings.job_retention_days
    maintain = Maintenance(
        queue, domain_queue, land, now, timedelta(days=days) if days is not None else None
    )
    wakeup = Wakeup()
    feed = Feed(
        wakeup,
        queue,
        now=now,
        # Jobs wait for their problem's test data.
        open_stream=None if in_process else change_stream(queue, also=("problems",)),
        maintain=maintain,
    )
    wakeup.when_somebody_waits(feed.begin)
    return Services(
        settings=settings,
        queue=queue,
        judge=Judge(domain_queue, now),
        process_result=land,
        hand_out=problem.hand_out,
        known_files=KnownFiles(),
        now=now,
        links=Links(settings.secret_key or "", now),
        guesses=Guesses(settings.failures_per_min_max),
        waiters=Waiters(settings.waiters_max),
        wakeup=wakeup,
        feed=feed,
        is_free=lambda submission_id: is_free(queue.jobs.get(submission_id), now),
        maintain=maintain,
        housekeeping=Housekeeping(maintain, maintain.advance, wakeup.notify),
        readiness=partial(_readiness, database, in_process, prepare),
    )


def _prepare(
    settings: Settings, database: Database[dict[str, Any]], queue: Queue, now: Clock
) -> None:
    """Create the indexes and the first admin key; say so where an index had been lost.

    Raises:
        PyMongoError: the database is not there.
    """
    before = index_check.in_use(database)
    queue.create_indexes()
    books.create_indexes(queue)
    engine.create_indexes()
    storage.create_indexes()
    console_session.create_indexes()
    rejudging.create_indexes()
    for collection, index in index_check.made(before, index_check.in_use(database)):
        emit("index_repaired", collection=collection, index=index)
    if settings.admin_api_key is not None:
        user.ensure_admin_key(settings.admin_api_key, now=now())


def _readiness(
    database: Database[dict[str, Any]], in_process: bool, prepare: Preparation
) -> str | None:
    if in_process:
        return None
    try:
        prepare.ensure()
        hello = database.client.admin.command("hello")
    except PyMongoError as error:
        return f"the database does not answer ({type(error).__name__})"
    if not hello.get("isWritablePrimary"):
        return "the database has no primary that takes writes"
    return None
