"""The processes of the demo: started on free ports in a fresh folder, and all ended again.

Guarantees: whatever ends the demo, its processes end too. On leaving `Processes` each is asked to
stop, killed if it does not, and then everything that descends from the demo is looked for: as the
subreaper it is the parent of every orphan, also of those whose own parents were killed. Should the
demo itself be killed, the kernel ends its direct children.
"""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
STOP_WAIT_S = 20.0
STRAYS_WAIT_S = 10.0
# Loaded before any fork: a forked child must not have to import anything.
_LIBC = ctypes.CDLL(None, use_errno=True)


class DemoFailed(Exception):
    """The demo cannot go on; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Child:
    """A process of the demo."""

    name: str
    process: subprocess.Popen[bytes]


def free_port() -> int:
    """Return a TCP port that is free on the loopback address now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Processes:
    """Starts processes with their output in `folder`, and ends them all when it is left.

    What had to be killed then, because it did not end with its parents, is named in `strays`.
    """

    def __init__(self, folder: Path, strays: list[str]) -> None:
        self._folder = folder
        self._strays = strays
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A second Ctrl-C while stopping must not leave half of them behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # The one that was started first serves the others: they report what they finish to it.
        for child in self._children[1:]:
            _ask_to_stop(child.process)
        for child in reversed(self._children):
            _stop(child.process)
        self._strays += _end_strays()

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Child:
        """Start `argv` with nothing but `env` in its environment, in a session of its own."""
        with (self._folder / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A terminal's Ctrl-C is for the demo alone, which then stops its children in order.
                start_new_session=True,
                preexec_fn=_dying_with(os.getpid()),
            )
        child = Child(name=name, process=process)
        self._children.append(child)
        return child

    def check_alive(self, *, but: Sequence[str] = ()) -> None:
        """Raise `DemoFailed` if a child ended that is not named in `but`."""
        for child in self._children:
            code = child.process.poll()
            if code is not None and child.name not in but:
                raise DemoFailed(f"{child.name} ended by itself, with exit code {code}")


def _dying_with(parent_pid: int) -> Callable[[], None]:
    def tie() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # the parent died before the line above
            os._exit(1)

    return tie


def _ask_to_stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)  # a stopped one could not answer
    process.terminate()


def _stop(process: subprocess.Popen[bytes]) -> None:
    _ask_to_stop(process)
    try:
        process.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_strays() -> list[str]:
    """Kill what still descends from this process and return the names of what had to be killed.

    What is just about to end, as programs of a killed runner are, gets a moment to do so.
    """
    deadline = time.monotonic() + STRAYS_WAIT_S
    while _descendants() and time.monotonic() < deadline:
        _reap()
        time.sleep(0.05)
    killed: set[str] = set()
    deadline = time.monotonic() + STRAYS_WAIT_S
    while (strays := _descendants()) and time.monotonic() < deadline:
        for pid, name in strays:
            killed.add(f"{name} ({pid})")
            _kill(pid)
        time.sleep(0.05)
        _reap()
    return sorted(killed)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # ended since it was listed, which is what is wanted


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _descendants() -> list[tuple[int, str]]:
    """List the processes below this one, zombies that only this process must reap left out."""
    parents: dict[int, tuple[int, str, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text(errors="replace").rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            state, parent = tail.split()[:2]
            parents[int(entry.name)] = (int(parent), head.partition("(")[2], state)
    found: list[tuple[int, str]] = []
    below = {os.getpid()}
    while below:
        children = {pid for pid, (parent, _, _) in parents.items() if parent in below}
        found += [(pid, parents[pid][1]) for pid in children if parents[pid][2] != "Z"]
        below = children
    return found
