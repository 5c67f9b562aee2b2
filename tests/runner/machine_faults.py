"""Ways for a judge machine to be broken, each done for real in a mount namespace of its own.

A fault may prepare the machine before the runner's executor is built, and breaks it afterwards.
What it does to `/usr` it does to an overlay: nobody outside the namespace sees any of it.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.cgroup import Hierarchy
from tests.runner.support import CPP, PYTHON, C

NATIVE, ALL = (C, CPP), (C, CPP, PYTHON)


@dataclass(kw_only=True)
class Scene:
    """What a fault may lay its hands on."""

    base: Path
    """An empty folder on a file system of memory."""
    work: Path
    cache: Path
    hierarchy: Hierarchy | None
    slot_uid: int | None
    service: Any
    stop: threading.Event = field(default_factory=threading.Event)
    undo: list[Callable[[], object]] = field(default_factory=list)


Step = Callable[[Scene], None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, the languages it hits, and a pattern of what the runner's log must say.

    `healed`: it passes by itself, or the runner gets around it, and the program is judged right.
    """

    words: str
    languages: tuple[int, ...] = ALL
    prepare: Step = lambda scene: None
    strike: Step = lambda scene: None
    healed: bool = False


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


def program_of(name: str) -> Path:
    """Where gcc finds one of its parts."""
    told = subprocess.run(
        ["gcc", f"-print-prog-name={name}"], check=True, capture_output=True, text=True
    )
    return Path(shutil.which(told.stdout.strip()) or "/nowhere").resolve()


def usr(change: Step) -> Step:
    """Have `/usr` be one that can be changed, and change it."""

    def step(scene: Scene) -> None:
        upper, work = scene.base / "upper", scene.base / "overlay-work"
        upper.mkdir()
        work.mkdir()
        options = f"lowerdir=/usr,upperdir={upper},workdir={work}"
        change_paths = _Resolved(change)
        change_paths.look(scene)
        run("mount", "-t", "overlay", "overlay", "-o", options, "/usr")
        change_paths.change(scene)

    return step


class _Resolved:
    """A change whose paths may be looked up before the tools for that are gone."""

    def __init__(self, change: Step) -> None:
        self.change = change

    def look(self, scene: Scene) -> None:
        found = getattr(self.change, "look", None)
        if found is not None:
            found()


def remove(*paths: str) -> Step:
    def step(scene: Scene) -> None:
        for path in paths:
            for found in Path("/").glob(path.lstrip("/")):
                if found.is_dir() and not found.is_symlink():
                    shutil.rmtree(found)
                else:
                    found.unlink()

    return step


def part(name: str, change: Callable[[Path], object]) -> Step:
    """Change one of gcc's parts."""
    path: list[Path] = []

    def step(scene: Scene) -> None:
        change(path[0])

    step.look = lambda: path.append(program_of(name))  # type: ignore[attr-defined]
    return step


def unlink(path: Path) -> None:
    path.unlink()


def forbid(path: Path) -> None:
    path.chmod(0o644)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def garbage(path: Path) -> None:
    path.write_bytes(b"\x7fNOT AN ELF\n" * 10)


def work_on(options: str) -> Step:
    """Put the work folder on a file system of its own."""
    return lambda scene: run("mount", "-t", "tmpfs", "-o", options, "tmpfs", scene.work)


def turn_read_only(scene: Scene) -> None:
    """Over itself: what has a file open there would be in the way of the real thing."""
    run("mount", "--bind", scene.work, scene.work)
    run("mount", "-o", "remount,bind,ro", scene.work)


def fill_work(scene: Scene) -> None:
    """Leave a megabyte: enough to compile a small program, not for what limits promise."""
    found = os.statvfs(scene.work)
    spare = found.f_bavail * found.f_frsize - (16 << 10)
    (scene.work / "filler").write_bytes(bytes(spare))


def use_up_inodes(scene: Scene) -> None:
    with suppress(OSError):
        for number in range(10_000):
            (scene.work / f"filler-{number}").touch()


def close_work(scene: Scene) -> None:
    scene.work.chmod(0o700)


def remove_work(scene: Scene) -> None:
    shutil.rmtree(scene.work)


def no_descriptors(scene: Scene) -> None:
    scene.undo.append(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, hard))


def no_processes(scene: Scene) -> None:
    """Have the slot's user have as many processes as it may."""
    user = str(scene.slot_uid)
    command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "sleep", "60"]
    sleepers = [subprocess.Popen(command) for _ in range(80)]
    # Reaped, too: where nobody else does that, they would be the user's processes for ever.
    scene.undo += [step for sleeper in sleepers for step in (sleeper.kill, sleeper.wait)]
    while any(_uid_of(sleeper.pid) != scene.slot_uid for sleeper in sleepers):
        time.sleep(0.01)


def _uid_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def no_pids(scene: Scene) -> None:
    """Have the group of all runs allow no process."""
    group = _group_above(scene, "pids")
    (group / "pids.max").write_text("1")


def little_memory(scene: Scene) -> None:
    """Have all runs together have less memory than one compiler needs."""
    group = _group_above(scene, "memory")
    (group / "memory.limit_in_bytes").write_text(str(6 << 20))


def no_groups(scene: Scene) -> None:
    """Take the folder of groups away; a new one cannot be made."""
    _group_above(scene, "memory").rmdir()


def _group_above(scene: Scene, controller: str) -> Path:
    """Make a group above those of the runs, beside this process's own."""
    if scene.hierarchy is None:
        raise RuntimeError("no control groups here")
    group = getattr(scene.hierarchy, controller) / f"fault-{os.getpid()}"
    group.mkdir()

    def away() -> None:
        with suppress(FileNotFoundError):
            for left in group.glob("runner-*"):
                left.rmdir()
            group.rmdir()

    scene.undo.append(away)
    scene.hierarchy = replace(scene.hierarchy, **{controller: group})
    return group


def killer(name: str, count: int) -> Step:
    """Kill whatever is called that, so many times."""

    def kill(scene: Scene) -> None:
        left = count
        while left and not scene.stop.is_set():
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, ValueError):
                    if _uid_of(int(folder.name)) != scene.slot_uid or not left:
                        continue
                    if (folder / "comm").read_text().strip() == name:
                        os.kill(int(folder.name), signal.SIGKILL)
                        left -= 1

    def step(scene: Scene) -> None:
        thread = threading.Thread(target=kill, args=(scene,), daemon=True)
        thread.start()
        scene.undo += [scene.stop.set, thread.join]

    return step


def clock_jumps(scene: Scene) -> None:
    """Whoever asks for the time of day is told another year each time."""
    years = iter(range(10_000))
    time.time = lambda: next(years) * 3.2e7  # type: ignore[assignment]


def cut_download(scene: Scene) -> None:
    for path, blob in scene.service.blobs.items():
        if path.endswith("/data"):
            scene.service.blobs[path] = blob[: len(blob) // 2]


def cut_code(scene: Scene) -> None:
    for path, blob in scene.service.blobs.items():
        if path.endswith("/code"):
            scene.service.blobs[path] = blob[: len(blob) // 2]


def rot_cache(scene: Scene) -> None:
    """Put something else where the job's test data would be."""
    (offer,) = scene.service.offers
    (scene.cache / f"{offer['testdata_sha256']}.zip").write_bytes(b"rotten")


def cache_on(options: str) -> Step:
    return lambda scene: run("mount", "-t", "tmpfs", "-o", options, "tmpfs", scene.cache)


def cache_read_only(scene: Scene) -> None:
    run("mount", "-o", "remount,ro", scene.cache)


def no_dev_null(scene: Scene) -> None:
    run("mount", "-t", "tmpfs", "tmpfs", "/dev")
    for name, minor in (("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
        os.mknod(f"/dev/{name}", 0o20666, os.makedev(1, minor))


FULL = "disk is full|No space left"
TMPFS = "size=512m,mode=755"
FAULTS: dict[str, Fault] = {
    # The compiler.
    "gcc missing": Fault(words="gcc", languages=(C,), strike=usr(remove("/usr/bin/gcc"))),
    "gcc not executable": Fault(
        words="Permission denied", languages=(C,),
        strike=usr(lambda scene: forbid(Path("/usr/bin/gcc").resolve())),
    ),
    "gcc is no program": Fault(
        words="does not compile", languages=(C,),
        strike=usr(lambda scene: garbage(Path("/usr/bin/gcc").resolve())),
    ),
    "g++ missing": Fault(words="g++", languages=(CPP,), strike=usr(remove("/usr/bin/g++"))),
    "cc1 missing": Fault(words="cc1", languages=(C,), strike=usr(part("cc1", unlink))),
    "cc1 not executable": Fault(words="cc1", languages=(C,), strike=usr(part("cc1", forbid))),
    "cc1plus missing": Fault(
        words="cc1plus", languages=(CPP,), strike=usr(part("cc1plus", unlink))
    ),
    "cc1plus cut in half": Fault(
        words="does not compile", languages=(CPP,), strike=usr(part("cc1plus", cut))
    ),
    "as missing": Fault(words="cannot execute", languages=NATIVE, strike=usr(part("as", unlink))),
    "ld missing": Fault(words="cannot find", languages=NATIVE, strike=usr(part("ld", unlink))),
    "no headers at all": Fault(
        words="does not compile", languages=NATIVE, strike=usr(remove("/usr/include/*"))
    ),
    "one header gone": Fault(
        words="does not compile", languages=(CPP,), strike=usr(remove("/usr/include/c++/*/map"))
    ),
    "the C library's start-up code gone": Fault(
        words="does not compile", languages=NATIVE,
        strike=usr(remove("/usr/lib/x86_64-linux-gnu/crt1.o", "/usr/lib/x86_64-linux-gnu/Scrt1.o")),
    ),
    "libm gone": Fault(
        words="does not compile", languages=(C,),
        strike=usr(remove("/usr/lib/x86_64-linux-gnu/libm.so", "/usr/lib/x86_64-linux-gnu/libm.a")),
    ),
    "the compiler is killed whenever it runs": Fault(
        words="does not compile", languages=(CPP,), strike=killer("cc1plus", 1000)
    ),
    "the compiler is killed once": Fault(
        words="Killed", languages=(CPP,), strike=killer("cc1plus", 1), healed=True
    ),
    "no memory for the compiler": Fault(
        words="ran out of memory", languages=(CPP,), prepare=little_memory
    ),
    # Python.
    "python3 missing": Fault(
        words="python3", languages=(PYTHON,), strike=usr(remove("/usr/bin/python3*"))
    ),
    "python3 not executable": Fault(
        words="Permission denied", languages=(PYTHON,),
        strike=usr(lambda scene: forbid(Path("/usr/bin/python3").resolve())),
    ),
    "python's library gone": Fault(
        words="does not compile", languages=(PYTHON,), strike=usr(remove("/usr/lib/python3.*"))
    ),
    "one module of python's library gone": Fault(
        words="heapq", languages=(PYTHON,), strike=usr(remove("/usr/lib/python3.*/heapq.py")),
    ),
    # The work folder.
    "a disk of 64 KiB": Fault(words=FULL, prepare=work_on("size=64k,mode=755")),
    "a disk that fills up": Fault(
        words=FULL, prepare=work_on(TMPFS), strike=fill_work
    ),
    "no inodes left": Fault(
        words="No space left on device",
        prepare=work_on("size=512m,nr_inodes=300,mode=755"), strike=use_up_inodes,
    ),
    "few inodes left": Fault(
        words="inodes", languages=(C,), prepare=work_on("size=512m,nr_inodes=20,mode=755"),
        strike=usr(remove("/usr/bin/gcc")),
    ),
    "mounted noexec": Fault(words="noexec", languages=NATIVE, prepare=work_on(f"{TMPFS},noexec")),
    "a disk that turned read-only": Fault(
        words="Read-only", prepare=work_on(TMPFS), strike=turn_read_only
    ),
    "a work folder nobody can enter": Fault(words="Permission denied", strike=close_work),
    "a work folder that is gone": Fault(words="No such file", strike=remove_work),
    # What builds the walls.
    "bwrap missing": Fault(words="bwrap", languages=(C,), strike=usr(remove("/usr/bin/bwrap"))),
    "bwrap not executable": Fault(
        words="bwrap", languages=(C,), strike=usr(lambda scene: forbid(Path("/usr/bin/bwrap")))
    ),
    "bwrap is killed whenever it runs": Fault(
        words="nothing can be run here", languages=(PYTHON,), strike=killer("bwrap", 1000)
    ),
    "setpriv missing": Fault(
        words="setpriv", languages=(C,), strike=usr(remove("/usr/bin/setpriv"))
    ),
    "prlimit missing": Fault(
        words="prlimit", languages=(C,), strike=usr(remove("/usr/bin/prlimit"))
    ),
    "/dev/null missing": Fault(words="/dev/null", languages=(C, PYTHON), strike=no_dev_null),
    # What the kernel gives out.
    "no processes left to the user": Fault(
        words="Resource temporarily unavailable", languages=(C, PYTHON), strike=no_processes
    ),
    "no processes left in the group": Fault(
        words="nothing can be run here", languages=(C, PYTHON), prepare=no_pids
    ),
    "no descriptors left": Fault(
        words="Too many open files", languages=(C,), strike=no_descriptors
    ),
    "control groups gone": Fault(words="No such file", languages=(C,), prepare=no_groups),
    # Test data and code.
    "the download of test data is cut": Fault(words="hash", languages=(C,), strike=cut_download),
    "the download of the code is cut": Fault(words="code", languages=(C,), strike=cut_code),
    "test data rotten in the cache": Fault(
        words="judged", languages=(C,), strike=rot_cache, healed=True
    ),
    "test data rotten in the cache and cut on the way": Fault(
        words="hash", languages=(C,), prepare=cut_download, strike=rot_cache
    ),
    "the cache's disk full": Fault(
        words="No space left on device", languages=(C,), prepare=cache_on("size=4k"),
    ),
    "the cache read-only": Fault(
        words="Read-only file system", languages=(C,), prepare=cache_on("size=1m"),
        strike=cache_read_only,
    ),
    # Nothing is wrong but the time of day.
    "a clock that jumps": Fault(words="judged", strike=clock_jumps, healed=True),
}  # fmt: skip
