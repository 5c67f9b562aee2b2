"""`python -m runner`: one reference runner in the foreground.

Guarantees: SIGTERM and SIGINT drain it and it exits 0, a second one ends it within seconds with
its jobs given back; every other end has its own exit code and one clear line. Without bubblewrap
it runs nobody's program unless told to, and without proof it offers no language.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

import click
import structlog

from runner.aftermath import watched
from runner.cgroup import find_hierarchy
from runner.client import Registered, RegistrationRefused, RunnerClient, Unavailable
from runner.cores import reserve_cores
from runner.executor import Executor
from runner.health import Health
from runner.heartbeat import Heartbeat
from runner.identity import Former, IdentityFile
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
from runner.process import JobStoppedError
from runner.retry import REPORT_DELAYS_S, repeat
from runner.settings import Settings, SettingsError, load_settings
from runner.soundness import Soundness
from runner.stopping import Signals
from runner.syscalls import FilterError, syscall_filters
from runner.testdata import TestDataCache
from runner.workspace import WorkRoot

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class ExitCode(IntEnum):
    """How the process ended."""

    # Also at once, with every job given back.
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
@click.option(
    "--unsafe-limits",
    is_flag=True,
    help="Run programs where neither control groups nor a filter of system calls make limits hold.",
)
def main(unsafe_no_isolation: bool, unsafe_limits: bool) -> NoReturn:
    """Judge jobs from BACKEND_URL until told to stop."""
    try:
        settings = load_settings()
    except SettingsError as error:
        _fail(ExitCode.WRONG_SETTING, f"wrong setting: {error}")
    configure_logging(settings.runner_name)
    signals = Signals()
    with ExitStack() as stack:
        try:
            unsafe = Unsafety(no_isolation=unsafe_no_isolation, limits=unsafe_limits)
            machine = _prepare(settings, unsafe, stack)
            cache = TestDataCache(settings.runner_cache_dir)
        except IsolationError as error:
            _fail(
                ExitCode.NO_ISOLATION,
                f"programs cannot be isolated here: {error} "
                "(--unsafe-no-isolation runs them without)",
            )
        except OSError as error:
            _fail(ExitCode.WRONG_SETTING, f"a folder cannot be used: {error}")
        memory = IdentityFile(settings.runner_cache_dir, str(settings.backend_url))
        stack.callback(memory.close)
        client = RunnerClient(str(settings.backend_url), sleep=signals.stopping.wait)
        stack.callback(client.close)
        soundness = Soundness(machine.executor.doctor)
        try:
            soundness.prove_due(machine.slots[0], signals.stopping.is_set)
        except JobStoppedError:
            sys.exit(ExitCode.DRAINED)
        registered = _register(client, settings, signals, soundness, memory)
        health = Health()
        jobs = JobRunner(
            client=client,
            executor=machine.executor,
            cache=cache,
            health=health,
            on_unsound=soundness.withdraw,
            why_not=soundness.why_not,
        )
        finish = _serve(client, registered, jobs, machine.slots, health, soundness, signals)
        # With every job reported or given back there is nothing to be taken over.
        memory.forget()
    sys.exit(ExitCode.IDENTITY_LOST if finish is Finish.IDENTITY_LOST else ExitCode.DRAINED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsafety:
    """What the operator accepts."""

    no_isolation: bool
    limits: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What runs programs here, and where."""

    executor: Executor
    slots: list[Slot]


def _prepare(settings: Settings, unsafe: Unsafety, stack: ExitStack) -> Machine:
    """Build what runs programs and try it. Raises IsolationError and OSError."""
    settings.runner_cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    work_root = WorkRoot()
    stack.callback(work_root.close)
    cores = reserve_cores(settings.runner_jobs, share=settings.runner_share_cores)
    stack.callback(cores.release)
    slots = reserve_slots(len(cores.of_slots), as_root=os.geteuid() == 0, cores=cores.of_slots)
    stack.callback(release_slots, slots)
    stack.enter_context(watched(slots))
    hierarchy = find_hierarchy()
    isolation = _isolation(unsafe, groups=hierarchy is not None)
    executor = Executor(isolation=isolation, work_root=work_root, hierarchy=hierarchy)
    executor.check(slots[0])
    _log.info(
        "ready",
        isolated=not unsafe.no_isolation,
        syscalls_filtered=bool(isolation.filters.usual),
        cgroup_version=None if hierarchy is None else hierarchy.version,
        own_user_per_slot=slots[0].uid is not None,
        cores=cores.of_slots,
    )
    return Machine(executor=executor, slots=slots)


def _isolation(unsafe: Unsafety, *, groups: bool) -> Isolation:
    """Build the walls, saying loudly which are missing. Raises IsolationError.

    `groups` where control groups count what a program uses.
    """
    if not groups:
        _log.critical(
            "NO CONTROL GROUPS: memory is only sampled, "
            "and programs may have neither children nor sockets"
        )
    if unsafe.no_isolation:
        _log.critical("UNSAFE: programs run WITHOUT ISOLATION and can read this machine's files")
        return Unsafe()
    try:
        return Bubblewrap(syscall_filters())
    except FilterError as error:
        if not groups and not unsafe.limits:
            raise IsolationError(
                f"neither control groups nor a filter of system calls ({error}): limits would not "
                "hold (--unsafe-limits runs programs all the same)"
            ) from error
        _log.critical("SYSTEM CALLS ARE NOT FILTERED: the other walls stand", error=str(error))
        if not groups:
            _log.critical("UNSAFE: limits on time and memory DO NOT HOLD against who evades them")
        return Bubblewrap()


def _register(
    client: RunnerClient,
    settings: Settings,
    signals: Signals,
    soundness: Soundness,
    memory: IdentityFile,
) -> Registered:
    """Register, as the successor of a crashed self if there was one that the service accepts."""
    former = memory.former()
    answer = _ask_to_register(client, settings, signals, soundness, former)
    if former is not None and isinstance(answer, RegistrationRefused):
        _log.info("former_identity_not_accepted", detail=answer.detail)
        answer = _ask_to_register(client, settings, signals, soundness, None)
    if isinstance(answer, Unavailable) and signals.stopping.is_set():
        sys.exit(ExitCode.DRAINED)
    if isinstance(answer, Unavailable | RegistrationRefused):
        _fail(ExitCode.NOT_REGISTERED, f"cannot register: {answer.detail}")
    memory.remember(answer)
    _log.info("registered", runner_id=answer.runner_id, languages=soundness.offered())
    return answer


def _ask_to_register(
    client: RunnerClient,
    settings: Settings,
    signals: Signals,
    soundness: Soundness,
    former: Former | None,
) -> Registered | RegistrationRefused | Unavailable:
    """Ask for an identity, for half a minute while the service is not there."""
    return repeat(
        lambda: client.register(
            settings.runner_registration_token.get_secret_value(),
            settings.runner_name,
            soundness.offered(),
            replaces=former,
        ),
        unfinished=lambda result: isinstance(result, Unavailable),
        retry_after_s=lambda result: (
            result.retry_after_s if isinstance(result, Unavailable) else None
        ),
        delays_s=REPORT_DELAYS_S,
        sleep=signals.stopping.wait,
    )


def _serve(
    client: RunnerClient,
    registered: Registered,
    jobs: JobRunner,
    slots: list[Slot],
    health: Health,
    soundness: Soundness,
    signals: Signals,
) -> Finish:
    """Poll and beat until drained or unknown to the service."""
    config = registered.config
    loop = Loop(
        client=client,
        jobs=jobs,
        slots=slots[: config.max_concurrent_jobs],
        health=health,
        poll_interval_s=config.poll_interval_s,
        soundness=soundness,
    )

    def lose_identity() -> None:
        _log.critical("identity_lost: the service does not know this runner; ending")
        signals.stopping.set()
        loop.lose_identity()

    heartbeat = Heartbeat(
        client=client,
        interval_s=config.heartbeat_interval_s,
        active_job_ids=loop.active_job_ids,
        on_lost=loop.lose,
        on_drain=loop.drain,
        on_identity_lost=lose_identity,
        languages=soundness.offered,
        languages_told=soundness.offered(),
    )
    signals.lead_to(loop.drain, loop.end_at_once)
    heartbeat.start()
    finish = loop.run()
    if finish is not Finish.AT_ONCE:
        heartbeat.stop()
    _log.info("finished", how=finish.value)
    return finish


def _fail(code: ExitCode, line: str) -> NoReturn:
    click.echo(f"runner: {line}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
