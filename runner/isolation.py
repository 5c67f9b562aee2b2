"""The walls around a program: bubblewrap, rlimits, an unprivileged user.

Guarantees, with bubblewrap: no network; of the host only /usr, its library links and two files
of /etc, all read-only, and the job's own folder; an empty environment; no way to other
processes; a private /tmp of bounded size that is gone afterwards; whatever a program starts
ends with it. `Unsafe` keeps the limits and the user, and none of the walls.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runner.limits import KIB, MIB, Limits
from runner.orphans import adopt_orphans
from runner.syscalls import Filters
from runner.workspace import Workspace

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
ENVIRONMENT = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": "/tmp"}  # noqa: S108 - the private one
INSIDE = "/judge"
ETC_FILES = ("/etc/ld.so.cache", "/etc/alternatives")
# Debian leaves these to local use: no package and no systemd service takes them.
FIRST_UID = 60600
UIDS = 500
# Where no control group holds the tree, each process may map this much more than its limit.
MAPPED_EXTRA_BYTES = 512 * MIB
STACK_BYTES_MAX = 64 * MIB
STACK_BYTES_MIN = 8 * MIB
# Those that build the isolation count too.
PROCESSES_OVERHEAD = 4
UNCOUNTED_BYTES_MAX = 1 * MIB
NO_FILTERS = Filters()
UNBOUNDED = resource.RLIM_INFINITY


class IsolationError(Exception):
    """The walls cannot be built here. The program did not run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """A place for one job at a time, with the user its programs run as (`None`: our own)."""

    index: int
    uid: int | None
    # The core that its programs run on, and nothing of another slot does (`None`: any).
    core: int | None = None
    # An abstract socket's name is free again the moment its process is gone: a lock on the
    # uid among all runners of a machine that no crash leaves behind.
    reservation: socket.socket | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What to start, and the descriptors it inherits beside the standard three.

    `reports_start` where a status line tells that the program got to run.
    """

    argv: list[str]
    environment: dict[str, str]
    inherited_fds: tuple[int, ...]
    reports_start: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What to run, where, as whom and within which limits.

    `memory_enforced` where control groups hold the tree to its memory limit. The descriptors
    are for whoever builds the walls: one to report to, one to read the filter of system calls
    from (empty: none).
    """

    program: list[str]
    workspace: Workspace
    slot: Slot
    limits: Limits
    memory_enforced: bool
    compiling: bool
    status_fd: int
    filter_fd: int


class Isolation(Protocol):
    """A way to run a program apart from everything else."""

    @property
    def filters(self) -> Filters:
        """The filters of which one is to be read from a launch's `filter_fd`."""

    @property
    def processes(self) -> int:
        """How many processes, each the parent of the next, are above the program's first."""

    def root(self, workspace: Workspace) -> str:
        """Return where the program finds the job's folder."""

    def command(self, launch: Launch) -> Command:
        """Build the command that runs the launch's program inside."""


class Bubblewrap:
    """The real walls, with filters of system calls (see `runner.syscalls`) unless empty."""

    # One that watches from outside, one that is the first inside.
    processes = 2

    def __init__(self, filters: Filters = NO_FILTERS) -> None:
        """Raises IsolationError where bubblewrap is missing."""
        try:
            adopt_orphans()
        except OSError as error:
            raise IsolationError(str(error)) from error
        self.filters = filters
        self._bwrap = _tool("bwrap")
        self._system = _system_mounts()

    def root(self, workspace: Workspace) -> str:
        """Return where the program finds the job's folder."""
        return INSIDE

    def command(self, launch: Launch) -> Command:
        """Build the command that runs the launch's program inside."""
        workspace, compiling = launch.workspace, launch.compiling
        filtered = bool(self.filters.usual)
        filtering = ["--seccomp", str(launch.filter_fd)] if filtered else []
        binary_mount = "--bind" if compiling else "--ro-bind"
        argv = [
            self._bwrap,
            "--unshare-all", "--unshare-user", "--disable-userns",
            "--uid", "1000", "--gid", "1000", "--hostname", "judge",
            "--die-with-parent", "--new-session",
            "--json-status-fd", str(launch.status_fd),
            *filtering,
            *_pairs("--setenv", ENVIRONMENT),
            *self._system,
            "--dev", "/dev", "--proc", "/proc",
            "--size", str(_scratch_bytes_max(launch)), "--tmpfs", "/tmp",  # noqa: S108
            "--ro-bind", str(workspace.sources), f"{INSIDE}/src",
            binary_mount, str(workspace.binaries), f"{INSIDE}/out",
            "--chdir", f"{INSIDE}/src" if compiling else "/tmp",  # noqa: S108
            # Memory for files would not end at /tmp's bound: everything else is read-only.
            "--remount-ro", "/dev", "--remount-ro", "/",
            "--",
        ]  # fmt: skip
        # bubblewrap's own environment would be readable in /proc/1/environ: it has none.
        return Command(
            # bubblewrap itself executes the program, so that its status tells whether that worked.
            argv=[*_limited(launch), *_as_user(launch.slot), *argv, *launch.program],
            environment={},
            inherited_fds=(launch.status_fd, *((launch.filter_fd,) if filtered else ())),
            reports_start=True,
        )


class Unsafe:
    """Limits and an unprivileged user, but no walls: for machines without bubblewrap.

    Where there are no control groups either, a program that leaves its process group can
    outlive its run.
    """

    filters = NO_FILTERS
    processes = 0

    def root(self, workspace: Workspace) -> str:
        """Return where the program finds the job's folder."""
        return str(workspace.folder)

    def command(self, launch: Launch) -> Command:
        """Build the command that runs the launch's program, in the job's own scratch folder."""
        workspace = launch.workspace
        cwd = workspace.sources if launch.compiling else workspace.scratch
        scratch = str(workspace.scratch)
        # What bubblewrap does for its own: a killed runner leaves nothing running.
        bound_to_us = [_tool("setpriv"), "--pdeathsig", "KILL", _tool("env"), "-C", str(cwd)]
        return Command(
            argv=[*_as_user(launch.slot), *bound_to_us, *_limited(launch), *launch.program],
            environment={**ENVIRONMENT, "HOME": scratch, "TMPDIR": scratch},
            inherited_fds=(),
            reports_start=False,
        )


def reserve_slots(
    count: int, *, as_root: bool, cores: Sequence[int | None] | None = None
) -> list[Slot]:
    """Return `count` slots; as root each gets a uid that no other runner here uses.

    Nor one that has processes: what a killed runner left counts against it, also as a zombie where
    nobody reaps. `cores` are those of the slots. Raises IsolationError where the uids run out.
    """
    cores = [None] * count if cores is None else cores
    if not as_root:
        return [Slot(index=index, uid=None, core=cores[index]) for index in range(count)]
    slots: list[Slot] = []
    in_use = {owner for _, owner in processes()}
    for uid in range(FIRST_UID, FIRST_UID + UIDS):
        if len(slots) == count:
            break
        if uid in in_use:
            continue
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0runner-uid-{uid}")
        except OSError:
            reservation.close()
            continue
        index = len(slots)
        slots.append(Slot(index=index, uid=uid, core=cores[index], reservation=reservation))
    if len(slots) < count:
        release_slots(slots)
        raise IsolationError(f"fewer than {count} users are free for programs")
    return slots


def release_slots(slots: list[Slot]) -> None:
    """Give the uids back."""
    for slot in slots:
        if slot.reservation is not None:
            slot.reservation.close()


def _system_mounts() -> list[str]:
    """Mount the toolchain and its libraries, as the host lays them out."""
    mounts = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            mounts += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            mounts += ["--ro-bind", str(path), str(path)]
    for file in ETC_FILES:
        mounts += ["--ro-bind-try", file, file]
    return mounts


def _as_user(slot: Slot) -> list[str]:
    """Become the slot's user for good. bubblewrap's --uid alone would leave the real one."""
    if slot.uid is None:
        return []
    user = str(slot.uid)
    return [
        _tool("setpriv"), "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs",
    ]  # fmt: skip


def _limited(launch: Launch) -> list[str]:
    """Run what follows under rlimits: the floor under what is counted for the whole tree."""
    limits = launch.limits
    memory_bytes = limits.memory_kib * KIB
    wanted = {
        "cpu": (resource.RLIMIT_CPU, limits.cpu_stop_ms // 1000 + 2),
        "nproc": (resource.RLIMIT_NPROC, _processes_max(launch)),
        "fsize": (resource.RLIMIT_FSIZE, limits.file_bytes_max),
        "nofile": (resource.RLIMIT_NOFILE, limits.files_open_max),
        "core": (resource.RLIMIT_CORE, 0),
        # Deep recursion is stopped by the memory limit, as any other use of memory; what builds
        # the walls has the same stack.
        "stack": (resource.RLIMIT_STACK, max(memory_bytes, STACK_BYTES_MIN)),
    }
    if not launch.memory_enforced:
        # A thread's stack is mapped in full, so it must leave room for others in the map.
        stack_bytes = max(STACK_BYTES_MIN, min(memory_bytes, STACK_BYTES_MAX))
        wanted["stack"] = (resource.RLIMIT_STACK, stack_bytes)
        wanted["as"] = (resource.RLIMIT_AS, memory_bytes + MAPPED_EXTRA_BYTES)
    options = [f"--{name}={_at_most_ours(kind, value)}" for name, (kind, value) in wanted.items()]
    return [_tool("prlimit"), *options, "--"]


def _scratch_bytes_max(launch: Launch) -> int:
    """Return how much /tmp holds: little where nothing counts it as the program's memory.

    It is less than the pages of its libraries, which are counted there and are not its own.
    """
    if launch.memory_enforced or launch.compiling:
        return launch.limits.scratch_bytes_max
    return min(launch.limits.scratch_bytes_max, UNCOUNTED_BYTES_MAX)


def _processes_max(launch: Launch) -> int:
    """Return how many processes the program's user may have, those that build the walls included.

    Our own user has others beside.
    """
    others = 0 if launch.slot.uid is not None else _threads_of(os.getuid())
    return launch.limits.processes_max + PROCESSES_OVERHEAD + others


def processes() -> Iterator[tuple[Path, int]]:
    """Yield each process's folder in /proc and its user id. Any may end at any moment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield folder, folder.stat().st_uid


def _threads_of(uid: int) -> int:
    """Return how many threads a user has at this moment."""
    count = 0
    for folder, owner in processes():
        if owner == uid:
            with suppress(OSError):
                count += len(os.listdir(folder / "task"))
    return count


def _at_most_ours(kind: int, value: int) -> int:
    """Cut a limit to our own hard one, which an unprivileged user may not raise."""
    hard = resource.getrlimit(kind)[1]
    return value if hard == UNBOUNDED else min(value, hard)


def _pairs(option: str, values: dict[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in (option, name, value)]


def _tool(name: str) -> str:
    path = shutil.which(name, path=SYSTEM_PATH)
    if path is None:
        raise IsolationError(f"{name} is not installed")
    return path
