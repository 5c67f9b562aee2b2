"""Running one program to its end under supervision.

Guarantees: `run` returns in bounded time whatever the program does; memory for its output is
bounded; at return nothing that it started is running (without bubblewrap: nothing of its
process group or control group). The program gets three file descriptors and no more.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from runner.accounting import Account
from runner.isolation import Command, IsolationError
from runner.limits import KIB, End, Limits, Outcome, Usage, ended_by
from runner.orphans import first_inside, reap
from runner.rundelay import RunDelay
from runner.streams import OutputPipe, StatusPipe, sealed_input

LOOK_EVERY_S = 0.01
# One byte more than is reported, so that what is longer is known to be.
STDERR_BYTES_KEPT = 64 * KIB + 1
# After the end the pipes close at once, unless something without walls still holds them.
DRAIN_S_MAX = 2.0
SIGNAL_BASE = 128
ERROR_BYTES_MAX = 500
# What bubblewrap says before the reason why it could not execute the program: nothing of the
# program ran, so the words are bubblewrap's.
EXEC_FAILED = "bwrap: execvp "

# Joins the control groups before anything of the program runs.
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 70; shift; done; shift; exec "$@"'


class JobStoppedError(Exception):
    """The job was taken away, or given back, while its program ran."""


def run(
    build: Callable[[int], Command],
    *,
    stdin: bytes,
    limits: Limits,
    account: Account,
    should_stop: Callable[[], bool],
    owner: int | None,
    core: int | None = None,
) -> Outcome:
    """Run the command that `build(status_fd)` gives, with `stdin`, until its end or a limit's.

    `owner` is the user id the program runs as, if not our own; `core` the one that its whole tree
    runs on (`None`: any); `account` is the caller's to close. Raises JobStoppedError when
    `should_stop()` turns true, and IsolationError when the walls could not be built.
    """
    with ExitStack() as stack:
        stdin_fd = stack.enter_context(sealed_input(stdin))
        status = stack.enter_context(StatusPipe())
        stdout = stack.enter_context(OutputPipe(limits.output_bytes_max, owner))
        stderr = stack.enter_context(OutputPipe(STDERR_BYTES_KEPT, owner))
        command = build(status.write_fd)
        with on_core(core):
            process = subprocess.Popen(
                [
                    *("/bin/sh", "-c", _ENTER, "sh", *map(str, account.entry_files), "--"),
                    *command.argv,
                ],
                stdin=stdin_fd,
                stdout=stdout.write_fd,
                stderr=stderr.write_fd,
                env=command.environment,
                cwd="/",
                pass_fds=command.inherited_fds,
                start_new_session=True,
            )
        for pipe in (status, stdout, stderr):
            pipe.close_write_end()
        running = _Running(process, (stdout, stderr), limits, account)
        try:
            end = running.watch(should_stop)
        except BaseException:
            running.finish()
            first = first_inside(status.text())
            if first is not None:
                reap(first)
            raise
        running.finish()
        said = status.text()
        first = first_inside(said) if command.reports_start else None
        usage = account.settle(running.told, None if first is None else reap(first))
        not_executed = None
        if command.reports_start and end is End.EXITED and not _got_to_run(said, usage):
            message = bytes(stderr.kept[:ERROR_BYTES_MAX]).decode("utf-8", "replace").strip()
            if not message.startswith(EXEC_FAILED):
                raise IsolationError(message or "the walls could not be built")
            not_executed = message.removeprefix(EXEC_FAILED)
        return Outcome(
            end=End.OUTPUT if running.output_over() else end,
            exit_code=running.exit_code,
            stdout=bytes(stdout.kept),
            stderr=bytes(stderr.kept),
            wall_ms=running.wall_ms(),
            usage=usage,
            waited_ms=running.delay.waited_ms,
            not_executed=not_executed,
        )


class _Running:
    """One started program and the means to watch and to end it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: tuple[OutputPipe, OutputPipe],
        limits: Limits,
        account: Account,
    ) -> None:
        self.exit_code = 0
        self.delay = RunDelay()
        self.told: resource.struct_rusage
        self._process = process
        self._pipes = pipes
        self._limits = limits
        self._account = account
        self._started = self._next_look = time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since the start."""
        return int((time.monotonic() - self._started) * 1000)

    def output_over(self) -> bool:
        """Whether either stream is longer than is allowed."""
        return any(pipe.total > self._limits.output_bytes_max for pipe in self._pipes)

    def watch(self, should_stop: Callable[[], bool]) -> End:
        """Read, look and wait until the program ended or must end. Raises JobStoppedError."""
        with ExitStack() as stack:
            pidfd = os.pidfd_open(self._process.pid)
            stack.callback(os.close, pidfd)
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(pidfd, selectors.EVENT_READ)
            for pipe in self._pipes:
                selector.register(pipe.read_fd, selectors.EVENT_READ, pipe)
            while True:
                ready = [key for key, _ in selector.select(LOOK_EVERY_S)]
                for key in ready:
                    if isinstance(key.data, OutputPipe) and not key.data.read():
                        selector.unregister(key.fd)
                if self.output_over():
                    return End.OUTPUT
                if any(key.fd == pidfd for key in ready):
                    return End.EXITED
                if should_stop():
                    raise JobStoppedError
                broken = self._look()
                if broken is not None:
                    return broken

    def finish(self) -> None:
        """End whatever still runs, reap it, and read what it left in the pipes."""
        # The group of the first process: bubblewrap's own, or the unwalled program's.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _, wait_status, rusage = os.wait4(self._process.pid, 0)
        code = os.waitstatus_to_exitcode(wait_status)
        self._process.returncode = code
        self.exit_code = code if code >= 0 else SIGNAL_BASE - code
        self.told = rusage
        self._account.kill_all()
        self._drain()

    def _look(self) -> End | None:
        """Compare the usage with the limits, at most every `LOOK_EVERY_S`."""
        if time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + LOOK_EVERY_S
        usage, wall_ms = self._account.sample(self._process.pid), self.wall_ms()
        threads = self._account.threads(self._process.pid)
        self.delay.look(threads, wall_ms=wall_ms, cpu_ms=usage.cpu_ms)
        return ended_by(self._limits, usage, wall_ms, self.delay.waited_ms)

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_S_MAX
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                selector.register(pipe.read_fd, selectors.EVENT_READ, pipe)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if not key.data.read():
                        selector.unregister(key.fd)


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Have what this thread starts meanwhile run on one core. Raises OSError.

    A child has its parent's cores from its first instruction on, however soon it forks.
    """
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _got_to_run(status: str, usage: Usage) -> bool:
    """Tell whether the program itself ran: bubblewrap reports an exit code only of that."""
    return usage.out_of_memory or usage.killed_for_machine or '"exit-code"' in status
