"""Control groups, versions 1 and 2: one group per run.

Guarantees: the memory limit holds for the whole process tree of a run, kernel memory and
/tmp included; its CPU time and peak memory are read from the kernel's own books; nothing of a
run outlives `kill_all`. Where the groups cannot be made, `find_hierarchy` returns `None`.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from runner.isolation import PROCESSES_OVERHEAD
from runner.limits import GROUP_EXTRA_KIB, KIB, WALLS_KIB, Limits, Usage

KILL_ROUNDS_MAX = 200
KILL_PAUSE_S = 0.005
# A group that is refused memory is this near to its limit, or nearer.
LIMIT_NEAR_BYTES = 1024 * KIB
PREFIX = "runner-"
OWN = f"{PREFIX}self"

_numbers = itertools.count()
_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Hierarchy:
    """Where groups are made. In version 2 all three are the same folder."""

    version: int
    memory: Path
    cpu: Path
    pids: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        """The distinct folders."""
        return tuple(dict.fromkeys((self.memory, self.cpu, self.pids)))


class CgroupAccount:
    """The books of one run, and its limits, in groups of its own. Raises OSError."""

    enforces_memory = True

    def __init__(self, hierarchy: Hierarchy, limits: Limits) -> None:
        name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        self._version = hierarchy.version
        self._memory = hierarchy.memory / name
        self._cpu = hierarchy.cpu / name
        self._folders = tuple(folder / name for folder in hierarchy.folders)
        self._peak = 0
        self._allowed = (limits.memory_kib + GROUP_EXTRA_KIB) * KIB
        try:
            for folder in self._folders:
                folder.mkdir()
            self._limit(limits, hierarchy.pids / name)
        except OSError:
            self.close()
            raise

    @property
    def entry_files(self) -> tuple[Path, ...]:
        """Files into which the program's first process writes 0 to be counted."""
        return tuple(folder / "cgroup.procs" for folder in self._folders)

    def sample(self, root_pid: int) -> Usage:
        """Return the usage so far. The pid is not needed: the group knows its members."""
        return self._usage()

    def settle(self, told: resource.struct_rusage, inside: resource.struct_rusage | None) -> Usage:
        """Return the usage of the ended run, from the kernel's books."""
        return self._usage()

    def threads(self, root_pid: int) -> list[int]:
        """Return the ids of the group's living threads."""
        name = "tasks" if self._version == 1 else "cgroup.threads"
        return _integers(self._memory / name)

    def kill_all(self) -> None:
        """Kill every member and wait, for at most a second, until the group is empty."""
        for _ in range(KILL_ROUNDS_MAX):
            members = _integers(self._memory / "cgroup.procs")
            if not members:
                return
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(KILL_PAUSE_S)
        _log.error("processes_outlive_their_run", pids=_integers(self._memory / "cgroup.procs"))

    def close(self) -> None:
        """Remove the groups."""
        for folder in self._folders:
            _remove(folder)

    def _limit(self, limits: Limits, pids: Path) -> None:
        allowed = str(self._allowed)
        if self._version == 1:
            (self._memory / "memory.limit_in_bytes").write_text(allowed)
            swap = self._memory / "memory.memsw.limit_in_bytes"
            if swap.exists():
                swap.write_text(allowed)
        else:
            (self._memory / "memory.max").write_text(allowed)
            swap = self._memory / "memory.swap.max"
            if swap.exists():
                swap.write_text("0")
        (pids / "pids.max").write_text(str(limits.processes_max + PROCESSES_OVERHEAD))

    def _usage(self) -> Usage:
        if self._version == 1:
            peak = _integers(self._memory / "memory.max_usage_in_bytes")[0]
            now = _integers(self._memory / "memory.usage_in_bytes")[0]
            kills = _table(self._memory / "memory.oom_control").get("oom_kill", 0)
            # Some kernels no longer count in memory.failcnt how often the limit was reached.
            reached = int(peak >= self._allowed - LIMIT_NEAR_BYTES)
            cpu_ms = _integers(self._cpu / "cpuacct.usage")[0] // 1_000_000
        else:
            peak = _integers(self._memory / "memory.peak")[0]
            now = _integers(self._memory / "memory.current")[0]
            events = _table(self._memory / "memory.events")
            kills, reached = events.get("oom_kill", 0), events.get("oom", 0)
            cpu_ms = _table(self._cpu / "cpu.stat").get("usage_usec", 0) // 1000
        files = self._file_pages()
        # A program that reads files after its peak must not talk that down.
        self._peak = max(self._peak, now - files, peak - files)
        return Usage(
            cpu_ms=cpu_ms,
            memory_kib=max(0, self._peak // KIB - WALLS_KIB),
            # The kernel counts its kills here even where another's memory was short.
            out_of_memory=kills > 0 and reached > 0,
            killed_for_machine=kills > 0 and reached == 0,
        )

    def _file_pages(self) -> int:
        """Bytes of files that this run was the first to read: the kernel's cache, not its use."""
        stat = _table(self._memory / "memory.stat")
        return stat.get("inactive_file", 0) + stat.get("active_file", 0)


def find_hierarchy(mounts: str | None = None, membership: str | None = None) -> Hierarchy | None:
    """Find where this process may make groups, trying it out; `None` where it may not.

    `mounts` and `membership` are the texts of /proc/self/mounts and /proc/self/cgroup.
    """
    mounts = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    membership = Path("/proc/self/cgroup").read_text() if membership is None else membership
    hierarchy = _version_1(mounts, membership) or _version_2(mounts, membership)
    if hierarchy is None:
        return None
    _sweep(hierarchy)
    try:
        probe = CgroupAccount(hierarchy, PROBE)
        probe.sample(0)
    except (OSError, IndexError):
        return None
    probe.close()
    return hierarchy


PROBE = Limits(
    cpu_ms=1000,
    wall_ms=1000,
    memory_kib=16 * KIB,
    output_bytes_max=0,
    file_bytes_max=0,
    scratch_bytes_max=0,
)


def _version_1(mounts: str, membership: str) -> Hierarchy | None:
    own = {
        controller: path
        for _, controllers, path in _memberships(membership)
        for controller in controllers.split(",")
    }
    found = {}
    for _, point, kind, options, *_ in (line.split() for line in mounts.splitlines()):
        for controller in {"memory", "cpuacct", "pids"}.intersection(options.split(",")):
            if kind == "cgroup" and controller in own:
                found[controller] = _existing(Path(point), own[controller])
    if len(found) < 3:
        return None
    return Hierarchy(version=1, memory=found["memory"], cpu=found["cpuacct"], pids=found["pids"])


def _version_2(mounts: str, membership: str) -> Hierarchy | None:
    points = [
        Path(fields[1]) for fields in map(str.split, mounts.splitlines()) if fields[2] == "cgroup2"
    ]
    paths = [path for number, _, path in _memberships(membership) if number == "0"]
    if not points or not paths:
        return None
    folder = _existing(points[0], paths[0])
    if folder.name == OWN:  # We, or who started us, moved there in `_delegate`.
        folder = folder.parent
    try:
        _delegate(folder)
    except OSError:
        return None
    return Hierarchy(version=2, memory=folder, cpu=folder, pids=folder)


def _delegate(folder: Path) -> None:
    """Hand the controllers down to the groups in `folder`. Raises OSError.

    A group that hands controllers down may have no members itself, so this process, and whoever
    is in the group with it (a container's init), moves into a group beside those of its runs.
    """
    handed_down = folder / "cgroup.subtree_control"
    wanted = {"memory", "pids"}
    if wanted <= set(handed_down.read_text().split()):
        return
    own = folder / OWN
    own.mkdir(exist_ok=True)
    for pid in {*_members(folder), os.getpid()}:
        # One may end meanwhile; one of another namespace shows as 0, and is not ours to move.
        with suppress(ProcessLookupError):
            (own / "cgroup.procs").write_text(str(pid))
    handed_down.write_text("+memory +pids")


def _members(folder: Path) -> list[int]:
    try:
        return [pid for pid in _integers(folder / "cgroup.procs") if pid > 0]
    except FileNotFoundError:
        return []


def _memberships(text: str) -> Iterable[tuple[str, str, str]]:
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        yield number, controllers, path


def _existing(point: Path, path: str) -> Path:
    """Return this process's own group, or the root where a container hides the way to it."""
    own = point / path.lstrip("/")
    return own if own.is_dir() else point


def _sweep(hierarchy: Hierarchy) -> None:
    """Remove groups of runners that were killed."""
    for folder in hierarchy.folders:
        for left in folder.glob(f"{PREFIX}[0-9]*-*"):
            pid = left.name.removeprefix(PREFIX).partition("-")[0]
            if not Path("/proc", pid).exists():
                _remove(left)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("group_not_removed", folder=folder.name, error=error.strerror)


def _integers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def _table(path: Path) -> Mapping[str, int]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
