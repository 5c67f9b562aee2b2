"""`python -m runner`: one reference runner in the foreground.

Guarantees: SIGTERM and SIGINT drain it and it exits 0; every other end has its own exit code
and one clear line. Without bubblewrap it runs nobody's program unless told to.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from enum import IntEnum
from typing import NoReturn

import click
import structlog

from runner.cgroup import find_hierarchy
from runner.client import Registered, RegistrationRefused, RunnerClient, Unavailable
from runner.executor import Executor
from runner.health import Health
from runner.heartbeat import Heartbeat
from runner.isolation import (
    Bubblewrap,
    Isolation,
    IsolationError,
    Slot,
    Unsafe,
    release_slots,
    reserve_slots,
)
from runner.jobrun import JobRunner
from runner.logs import configure_logging
from runner.loop import Finish, Loop
from runner.retry import REPORT_DELAYS_S, repeat
from runner.settings import Settings, SettingsError, load_settings
from runner.syscalls import FilterError, syscall_filter
from runner.testdata import TestDataCache
from runner.workspace import WorkRoot

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class ExitCode(IntEnum):
    """How the process ended."""

    DRAINED = 0
    WRONG_SETTING = 2
    NO_ISOLATION = 3
    NOT_REGISTERED = 4
    IDENTITY_LOST = 5


@click.command()
@click.option(
    "--unsafe-no-isolation",
    is_flag=True,
    help="Run programs without bubblewrap: with limits, but able to read this machine's files "
    "and to use its network. For machines that judge only trusted programs.",
)
def main(unsafe_no_isolation: bool) -> NoReturn:
    """Judge jobs from BACKEND_URL until told to stop."""
    try:
        settings = load_settings()
    except SettingsError as error:
        _fail(ExitCode.WRONG_SETTING, f"wrong setting: {error}")
    configure_logging(settings.runner_name)
    stopping = threading.Event()
    # Until there is a loop to drain, a signal only cuts the waits of the start short.
    _on_signals(stopping.set)
    with ExitStack() as stack:
        try:
            executor, slots = _prepare(settings, unsafe_no_isolation, stack)
        except IsolationError as error:
            _fail(
                ExitCode.NO_ISOLATION,
                f"programs cannot be isolated here: {error} "
                "(--unsafe-no-isolation runs them without)",
            )
        except OSError as error:
            _fail(ExitCode.WRONG_SETTING, f"a folder cannot be used: {error}")
        client = RunnerClient(str(settings.backend_url), sleep=stopping.wait)
        stack.callback(client.close)
        registered = _register(client, settings, stopping)
        cache = TestDataCache(settings.runner_cache_dir)
        health = Health()
        jobs = JobRunner(client=client, executor=executor, cache=cache, health=health)
        finish = _serve(client, registered, jobs, slots, health, stopping)
    sys.exit(ExitCode.DRAINED if finish is Finish.DRAINED else ExitCode.IDENTITY_LOST)


def _prepare(
    settings: Settings, unsafe_no_isolation: bool, stack: ExitStack
) -> tuple[Executor, list[Slot]]:
    """Build what runs programs and try it. Raises IsolationError and OSError."""
    settings.runner_cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    work_root = WorkRoot()
    stack.callback(work_root.close)
    slots = reserve_slots(settings.runner_jobs, as_root=os.geteuid() == 0)
    stack.callback(release_slots, slots)
    isolation = _isolation(unsafe_no_isolation)
    hierarchy = find_hierarchy()
    executor = Executor(isolation=isolation, work_root=work_root, hierarchy=hierarchy)
    executor.check(slots[0])
    _log.info(
        "ready",
        isolated=not unsafe_no_isolation,
        syscalls_filtered=bool(isolation.syscall_filter),
        cgroup_version=None if hierarchy is None else hierarchy.version,
        own_user_per_slot=slots[0].uid is not None,
    )
    return executor, slots


def _isolation(unsafe: bool) -> Isolation:
    """Build the walls, saying loudly which are missing. Raises IsolationError."""
    if unsafe:
        _log.critical("UNSAFE: programs run WITHOUT ISOLATION and can read this machine's files")
        return Unsafe()
    try:
        return Bubblewrap(syscall_filter())
    except FilterError as error:
        _log.critical("SYSTEM CALLS ARE NOT FILTERED: the other walls stand", error=str(error))
        return Bubblewrap()


def _register(client: RunnerClient, settings: Settings, stopping: threading.Event) -> Registered:
    """Register, trying for half a minute while the service is not there."""
    answer = repeat(
        lambda: client.register(
            settings.runner_registration_token.get_secret_value(), settings.runner_name
        ),
        unfinished=lambda result: isinstance(result, Unavailable),
        retry_after_s=lambda result: (
            result.retry_after_s if isinstance(result, Unavailable) else None
        ),
        delays_s=REPORT_DELAYS_S,
        sleep=stopping.wait,
    )
    if isinstance(answer, Unavailable) and stopping.is_set():
        sys.exit(ExitCode.DRAINED)
    if isinstance(answer, Unavailable | RegistrationRefused):
        _fail(ExitCode.NOT_REGISTERED, f"cannot register: {answer.detail}")
    _log.info("registered", runner_id=answer.runner_id)
    return answer


def _serve(
    client: RunnerClient,
    registered: Registered,
    jobs: JobRunner,
    slots: list[Slot],
    health: Health,
    stopping: threading.Event,
) -> Finish:
    """Poll and beat until drained or unknown to the service."""
    config = registered.config
    loop = Loop(
        client=client,
        jobs=jobs,
        slots=slots[: config.max_concurrent_jobs],
        health=health,
        poll_interval_s=config.poll_interval_s,
    )

    def lose_identity() -> None:
        _log.critical("identity_lost: the service does not know this runner; ending")
        stopping.set()
        loop.lose_identity()

    heartbeat = Heartbeat(
        client=client,
        interval_s=config.heartbeat_interval_s,
        active_job_ids=loop.active_job_ids,
        on_lost=loop.lose,
        on_drain=loop.drain,
        on_identity_lost=lose_identity,
    )
    _on_signals(loop.drain)
    if stopping.is_set():
        loop.drain()
    heartbeat.start()
    finish = loop.run()
    heartbeat.stop()
    _log.info("finished", how=finish.value)
    return finish


def _on_signals(react: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        # A handler interrupts the main thread, which may hold the very lock that `react` needs.
        signal.signal(number, lambda *_: threading.Thread(target=react, daemon=True).start())


def _fail(code: ExitCode, line: str) -> NoReturn:
    click.echo(f"runner: {line}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
