"""Programs that attack, and what the walls are made of.

After each of them nothing of it is left, and the next honest job is judged right and as fast as
one before it. Where a machine is slow (an emulated one), JUDGE_SLOWNESS stretches time limits.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

import runner.executor
import runner.program
from runner.isolation import Bubblewrap, Slot
from runner.languages import TOOLCHAINS, Toolchain
from runner.process import JobStoppedError
from runner.streams import sealed_input
from runner.wire import Verdict
from tests.runner.hostile_programs import (
    AT_COMPILE_TIME,
    AT_RUN_TIME,
    CONTAINED,
    FOLDER,
    WITHOUT_GROUPS,
    Attack,
)
from tests.runner.support import PYTHON, Bench

CPUINFO = Path("/proc/cpuinfo")
SLOWNESS = int(os.environ.get("JUDGE_SLOWNESS", "1"))
HONEST = "print(sum(range(int(input()))))"
HONEST_CASE = (b"1000000\n", b"499999500000\n")
# An honest job after an attack, beside one before all attacks; the best of a few tries counts,
# since others share the machine.
TIMES_SLOWER_MAX = 5
TRIES = 5
SECRET = "token-of-the-runner-9d3f1c"
# As much as the compilers need for any honest program here; a bomb is over sooner.
COMPILE_MEMORY_KIB = 128 * 1024


def honest_s(bench: Bench) -> float:
    """Judge an honest job, check its verdict and return the seconds it took."""
    started = time.monotonic()
    report = bench.one(PYTHON, HONEST, HONEST_CASE, time_ms=5000 * SLOWNESS)
    took = time.monotonic() - started
    assert report.status == Verdict.AC
    return took


@pytest.fixture(scope="module")
def usual() -> dict[str, float]:
    """What an honest job takes, measured before the first attack."""
    return {}


@pytest.fixture(autouse=True)
def nothing_is_left(bench, work_root, slot, hierarchy, usual) -> Iterator[None]:
    """No process, no group, no file of a run is there after it, and the next one is fine."""
    if not usual:
        usual["seconds"] = max(honest_s(bench) for _ in range(TRIES))
    yield
    tries = (honest_s(bench) for _ in range(TRIES))
    assert any(took <= TIMES_SLOWER_MAX * usual["seconds"] for took in tries)
    # What is dead already may wait for the machine's init to reap it.
    left = [
        process
        for process in psutil.process_iter(["cmdline", "uids"])
        if any(str(work_root.folder) in part for part in process.info["cmdline"] or ())
        or (slot.uid is not None and process.info["uids"].real == slot.uid)
    ]
    assert psutil.wait_procs(left, timeout=10)[1] == []
    for folder in hierarchy.folders if hierarchy is not None else ():
        assert list(folder.glob(f"runner-{os.getpid()}-*")) == []
    assert {path.name for path in work_root.folder.iterdir()} == {"lock"}


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What an attack could reach if the walls had holes; all of it is real."""

    port: int
    abstract_name: str
    other_job: Path

    def line(self) -> bytes:
        """What a program is told. The secret goes backwards: its own input is no find."""
        return f"{SECRET[::-1]} {self.port} {self.abstract_name} {self.other_job}\n".encode()


@pytest.fixture
def targets(bench, slot, monkeypatch) -> Iterator[Targets]:
    """A service on loopback, an abstract socket, a secret, and another job of the same user."""
    monkeypatch.setenv("RUNNER_REGISTRATION_TOKEN", SECRET)
    name = f"runner-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
        bench.executor.open_job(TOOLCHAINS[PYTHON], SECRET.encode(), slot) as other,
    ):
        local.bind(f"\0{name}")
        local.listen()
        yield Targets(
            port=server.getsockname()[1],
            abstract_name=name,
            other_job=other.place.workspace.folder,
        )


def launch(bench: Bench, attack: Attack, stdin: bytes = b"") -> str:
    """Run an attack, check its verdict, return what was shown of it."""
    report = bench.one(
        attack.language,
        attack.source,
        (stdin, CONTAINED),
        memory_mib=attack.memory_mib,
        time_ms=attack.time_ms * SLOWNESS,
    )
    shown = report.stdout + report.stderr
    assert report.status in attack.verdicts, f"{report.status}: {shown[-1000:]}"
    assert SECRET not in shown
    assert "root:" not in shown
    return shown


def skip_where_it_has_no_meaning(file: str) -> None:
    if file == "calls_as_another_architecture.c" and "User Mode" in CPUINFO.read_text():
        pytest.skip("user-mode Linux has no second gate to the kernel")


@pytest.mark.parametrize("attack", AT_RUN_TIME, ids=lambda attack: attack.file)
def test_attacks_at_run_time(bench, targets, attack):
    skip_where_it_has_no_meaning(attack.file)
    launch(bench, attack, targets.line())


@pytest.mark.parametrize("attack", AT_COMPILE_TIME, ids=lambda attack: attack.file)
def test_attacks_at_compile_time(bench, monkeypatch, attack):
    limits = replace(runner.program.COMPILE_LIMITS, memory_kib=COMPILE_MEMORY_KIB)
    monkeypatch.setattr(runner.executor, "COMPILE_LIMITS", limits)
    monkeypatch.setenv("RUNNER_REGISTRATION_TOKEN", SECRET)
    shown = launch(bench, attack)
    assert shown  # A compile error says why.


@pytest.mark.parametrize("attack", WITHOUT_GROUPS, ids=lambda attack: attack.file)
def test_attacks_where_nothing_counts_the_whole_tree(bench_without_groups, attack):
    launch(bench_without_groups, attack)


def test_without_groups_a_program_has_threads_but_no_children(bench_without_groups):
    report = bench_without_groups.one(
        PYTHON,
        """
import os, threading
threading.Thread(target=print, args=("a thread",)).start()
try:
    os.fork()
except PermissionError:
    print("no child")
""",
        time_ms=2000 * SLOWNESS,
    )
    assert report.stdout == "a thread\nno child\n"


def test_without_groups_files_hold_no_more_than_a_mebibyte(bench_without_groups):
    source = """
size = 0
try:
    with open("/tmp/file", "wb", buffering=0) as file:
        while True:
            size += file.write(bytes(1 << 16))
except OSError:
    print(size)
"""
    report = bench_without_groups.one(PYTHON, source, time_ms=2000 * SLOWNESS)
    assert 0 < int(report.stdout) <= 1 << 20


def test_every_program_in_the_folder_is_run():
    files = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.*")}
    assert {attack.file for attack in (*AT_RUN_TIME, *AT_COMPILE_TIME)} == files


@pytest.mark.parametrize("file", ["opens_sockets.c", "calls_as_another_architecture.c"])
def test_without_the_filter_some_get_through(hierarchy, work_root, slot, tmp_path, file):
    """The probes can tell: a host's vsock is in no namespace, and so are old system calls."""
    skip_where_it_has_no_meaning(file)
    executor = runner.executor.Executor(
        isolation=Bubblewrap(), work_root=work_root, hierarchy=hierarchy
    )
    open_bench = Bench(executor=executor, slot=slot, folder=tmp_path)
    (attack,) = (attack for attack in AT_RUN_TIME if attack.file == file)
    report = open_bench.one(attack.language, attack.source, (b"", CONTAINED))
    assert report.status == Verdict.WA


def test_memory_without_a_process_is_counted_by_the_group(hierarchy, work_root, slot, tmp_path):
    """Without the filter, that would refuse to make it."""
    if hierarchy is None:
        pytest.skip("NO CONTROL GROUPS HERE: memory is only sampled")
    executor = runner.executor.Executor(
        isolation=Bubblewrap(), work_root=work_root, hierarchy=hierarchy
    )
    open_bench = Bench(executor=executor, slot=slot, folder=tmp_path)
    (attack,) = (attack for attack in AT_RUN_TIME if attack.file == "allocates_shared_memory.c")
    report = open_bench.one(attack.language, attack.source, time_ms=attack.time_ms * SLOWNESS)
    assert report.status == Verdict.MLE


def test_what_one_run_leaves_the_next_does_not_find(bench):
    """Neither the next case nor the next job: in /tmp, in shared memory, in message queues."""
    source = """
import ctypes, os
libc = ctypes.CDLL(None)
print(os.listdir("/tmp"), libc.shmget(7, 0, 0), libc.msgget(7, 0), libc.semget(7, 0, 0))
open("/tmp/left", "w").write("x")
libc.shmget(7, 4096, 0o1666), libc.msgget(7, 0o1666), libc.semget(7, 1, 0o1666)
"""
    for _ in range(2):
        reports = bench.judge(PYTHON, source, (b"", b""), (b"", b""), time_ms=2000 * SLOWNESS)
        assert [report.stdout for report in reports] == ["[] -1 -1 -1\n"] * 2


def test_without_walls_the_next_run_finds_an_empty_folder_too(unsafe_bench):
    source = """
import os
print(os.listdir("."))
os.makedirs("a/b"); open("a/b/left", "w").write("x"); os.chmod("a", 0); os.symlink("/etc", "link")
"""
    reports = unsafe_bench.judge(PYTHON, source, (b"", b""), (b"", b""), time_ms=2000 * SLOWNESS)
    assert [report.stdout for report in reports] == ["[]\n"] * 2


@pytest.mark.parametrize("link_to", ["/etc/passwd", "/judge/src/main.c", "/dev/zero", "."])
def test_a_binary_that_is_a_link_is_no_program(bench, link_to):
    """A compiler that could be talked into it would make the runner look elsewhere."""
    linking = Toolchain(
        source_name="main.c",
        compile_command=("ln", "-s", link_to, "{root}/out/main"),
        run_command=("{root}/out/main",),
        makes_binary=True,
    )
    with bench.executor.open_job(linking, b"", bench.slot) as program:
        error = program.compile(lambda: False)
    assert error is not None
    assert b"gave no program" in error.message


def test_a_daemon_without_walls_holds_up_nobody(unsafe_bench, slot):
    """Nothing ends it here, but nobody waits for it either."""
    if slot.uid is None:
        pytest.skip("not root: the daemon could not be told from other processes")
    source = """
import os, time
print("done", flush=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(3600)
"""
    report = unsafe_bench.one(PYTHON, source, (b"", b"done"), time_ms=1000 * SLOWNESS)
    daemons = [
        process
        for process in psutil.process_iter(["uids"])
        if process.info["uids"].real == slot.uid
    ]
    for daemon in daemons:
        daemon.kill()
    psutil.wait_procs(daemons, timeout=10)
    assert report.status == Verdict.AC


def test_the_input_cannot_be_changed():
    with sealed_input(b"abc") as fd:
        assert os.read(fd, 9) == b"abc"
        for attempt in (lambda: os.write(fd, b"x"), lambda: os.ftruncate(fd, 0)):
            with pytest.raises(PermissionError):
                attempt()


def test_the_user_is_nobody_special(bench, slot: Slot):
    if slot.uid is None:
        pytest.skip("not root")
    status = "print(open('/proc/self/status').read())"
    printed = bench.one(PYTHON, status, time_ms=2000 * SLOWNESS).stdout
    assert "CapEff:\t0000000000000000" in printed
    assert "CapBnd:\t0000000000000000" in printed
    assert "NoNewPrivs:\t1" in printed
    assert "Seccomp:\t2" in printed
    ours = threading.Event()
    seen: list[int] = []

    def look() -> bool:
        seen.extend(
            process.info["uids"].real
            for process in psutil.process_iter(["name", "uids"])
            if process.info["name"] == "honest-name"
        )
        if seen:
            ours.set()
        return ours.is_set()

    source = "import ctypes\nctypes.CDLL(None).prctl(15, b'honest-name', 0, 0, 0)\nwhile True: pass"
    with pytest.raises(JobStoppedError):
        bench.one(PYTHON, source, time_ms=10_000 * SLOWNESS, should_stop=look)
    assert seen
    assert set(seen) == {slot.uid}


def test_a_stopped_job_stops_at_once_and_leaves_nothing(bench):
    looks = iter([False] * 5)
    with pytest.raises(JobStoppedError):
        bench.one(
            PYTHON,
            "import time; time.sleep(60)",
            time_ms=60_000,
            should_stop=lambda: next(looks, True),
        )
