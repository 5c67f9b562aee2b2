"""What the runner takes from its machine: folders, users, control groups, settings."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from runner import cgroup
from runner.accounting import ProcAccount
from runner.cgroup import CgroupAccount, Hierarchy, find_hierarchy
from runner.isolation import IsolationError, release_slots, reserve_slots
from runner.limits import End, Limits, Usage, ended_by, wall_limit_ms
from runner.process import JobStoppedError
from runner.settings import SettingsError, load_settings
from runner.workspace import PREFIX, WorkRoot
from tests.runner.support import PYTHON, C

LIMITS = Limits(
    cpu_ms=1000,
    wall_ms=3000,
    memory_kib=65536,
    output_bytes_max=1,
    file_bytes_max=1,
    scratch_bytes_max=1,
)


# --- limits -----------------------------------------------------------------------------------


def usage(cpu_ms: int = 0, memory_kib: int = 0, out_of_memory: bool = False) -> Usage:
    return Usage(cpu_ms=cpu_ms, memory_kib=memory_kib, out_of_memory=out_of_memory)


@pytest.mark.parametrize(
    ("used", "wall_ms", "waited_ms", "end"),
    [
        (usage(cpu_ms=1200), 1200, 0, None),  # It may be done in a moment: then it runs again.
        (usage(cpu_ms=1201), 1201, 0, End.CPU),
        (usage(cpu_ms=0), 3000, 0, None),
        (usage(cpu_ms=0), 3001, 0, End.WALL),
        (usage(cpu_ms=0), 3001, 1, None),  # Only time of its own counts.
        (usage(cpu_ms=523), 5000, 4400, None),
        (usage(cpu_ms=900), 3300, 0, None),  # It shares the machine, it does not wait.
        (usage(cpu_ms=800), 3300, 0, End.WALL),
        (usage(cpu_ms=1000), 4001, 0, End.WALL),
        (usage(cpu_ms=100), 12000, 11900, None),
        (usage(cpu_ms=100), 12001, 11900, End.BUSY),
        (usage(memory_kib=65536), 0, 0, None),
        (usage(memory_kib=65537), 0, 0, End.MEMORY),
        (usage(out_of_memory=True), 0, 0, End.MEMORY),
    ],
)
def test_which_limit_is_broken(used, wall_ms, waited_ms, end):
    assert ended_by(LIMITS, used, wall_ms, waited_ms) is end


def test_the_wall_is_twice_the_time_and_a_second():
    assert wall_limit_ms(1000) == 3000


# --- folders ----------------------------------------------------------------------------------


def test_a_jobs_folder_is_gone_afterwards(tmp_path, slot):
    root = WorkRoot(tmp_path)
    with root.workspace(slot.uid) as workspace:
        assert (workspace.folder.stat().st_mode & 0o777) == 0o700
        closed = workspace.scratch / "closed" / "deeper"
        closed.mkdir(parents=True)
        (closed / "file").write_text("x")
        closed.chmod(0)
        (workspace.scratch / "link").symlink_to(tmp_path)
    assert not workspace.folder.exists()
    assert tmp_path.exists()
    root.close()
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_user_can_remove_what_a_program_closed(slot):
    """Root passes everywhere; so a child process that is not root does the removing."""
    parent = Path(tempfile.mkdtemp())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if slot.uid is not None:
                os.chown(parent, slot.uid, slot.uid)
                os.setgroups([])
                os.setgid(slot.uid)
                os.setuid(slot.uid)
            root = WorkRoot(parent)
            with root.workspace(None) as workspace:
                closed = workspace.scratch / "closed"
                closed.mkdir()
                (closed / "file").touch()
                closed.chmod(0)
            root.close()
            code = len(list(parent.iterdir()))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    shutil.rmtree(parent)
    assert os.waitstatus_to_exitcode(status) == 0


def test_what_a_killed_runner_left_is_removed_and_what_a_living_one_has_stays(tmp_path):
    living = WorkRoot(tmp_path)
    dead = tmp_path / f"{PREFIX}dead"
    (dead / "job-1" / "src").mkdir(parents=True)
    (dead / "lock").touch()
    starting = tmp_path / f"{PREFIX}just-being-made"
    starting.mkdir()
    before = set(tmp_path.iterdir())
    newcomer = WorkRoot(tmp_path)
    assert before - set(tmp_path.iterdir()) == {dead}
    newcomer.close()
    living.close()


def test_a_folder_that_is_swept_must_not_be_locked(tmp_path):
    held = tmp_path / f"{PREFIX}held"
    held.mkdir()
    handle = os.open(held / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    WorkRoot(tmp_path).close()
    assert held.exists()
    os.close(handle)
    WorkRoot(tmp_path).close()
    assert not held.exists()


# --- users ------------------------------------------------------------------------------------


@pytest.fixture
def uids_of_our_own(monkeypatch):
    """Reserve where no other runner on this machine does. No process needs these users."""
    monkeypatch.setattr("runner.isolation.FIRST_UID", 1_000_000 + os.getpid() * 10)


@pytest.mark.usefixtures("uids_of_our_own")
def test_every_slot_of_every_runner_has_a_user_of_its_own():
    one, other = reserve_slots(2, as_root=True), reserve_slots(2, as_root=True)
    assert len({slot.uid for slot in one + other}) == 4
    first = one[0].uid
    release_slots(one)
    again = reserve_slots(1, as_root=True)
    assert again[0].uid == first
    release_slots(again + other)


@pytest.mark.usefixtures("uids_of_our_own")
def test_a_user_that_has_processes_is_passed_over():
    """As a killed runner may have left them, and as zombies where nobody reaps."""
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: users of slots are NOT tested here")
    slots = reserve_slots(2, as_root=True)
    release_slots(slots)
    first, second = (slot.uid for slot in slots)
    left = psutil.Popen(["setpriv", "--reuid", str(first), "--clear-groups", "sleep", "60"])
    try:
        while left.uids().real != first:
            time.sleep(0.01)
        (slot,) = reserve_slots(1, as_root=True)
        release_slots([slot])
        assert slot.uid == second
        left.kill()
        while left.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        (slot,) = reserve_slots(1, as_root=True)
        release_slots([slot])
        assert slot.uid == second
    finally:
        left.kill()
        left.wait()


@pytest.mark.usefixtures("uids_of_our_own")
def test_users_may_run_out(monkeypatch):
    monkeypatch.setattr("runner.isolation.UIDS", 2)
    with pytest.raises(IsolationError):
        reserve_slots(3, as_root=True)
    slots = reserve_slots(2, as_root=True)
    release_slots(slots)


def test_without_root_programs_run_as_our_own_user():
    assert [slot.uid for slot in reserve_slots(2, as_root=False)] == [None, None]


# --- control groups ---------------------------------------------------------------------------


def test_without_control_groups_there_is_no_hierarchy():
    assert find_hierarchy(mounts="proc /proc proc rw 0 0\n", membership="0::/\n") is None


def test_version_1_needs_all_three_controllers(tmp_path):
    mounts = f"cgroup {tmp_path} cgroup rw,memory 0 0\n"
    assert find_hierarchy(mounts=mounts, membership="4:memory:/\n") is None


def fake_version_2(folder: Path) -> tuple[str, str]:
    """Lay out plain files as the kernel would show them to a process in /service."""
    own = folder / "service"
    own.mkdir()
    (own / "cgroup.subtree_control").write_text("")
    return f"none {folder} cgroup2 rw 0 0\n", "0::/service\n"


def fill_version_2(group: Path, *, oom: int = 0, oom_kill: int = 0) -> None:
    (group / "memory.peak").write_text(f"{51 << 20}\n")
    (group / "memory.current").write_text(f"{30 << 20}\n")
    (group / "memory.events").write_text(f"low 0\noom {oom}\noom_kill {oom_kill}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {8 << 20}\nactive_file {2 << 20}\n")
    (group / "cpu.stat").write_text("usage_usec 1234567\nuser_usec 1\n")
    (group / "cgroup.procs").write_text("")


def test_version_2_hands_controllers_down_and_limits(tmp_path, monkeypatch):
    """On plain files: the machine of the tests may have version 1 only."""
    mounts, membership = fake_version_2(tmp_path)
    real_limit = CgroupAccount._limit

    def limit_and_fill(self, limits, pids):
        real_limit(self, limits, pids)
        fill_version_2(self._memory)

    monkeypatch.setattr(CgroupAccount, "_limit", limit_and_fill)
    monkeypatch.setattr(cgroup, "_remove", lambda folder: None)
    hierarchy = find_hierarchy(mounts=mounts, membership=membership)
    own = tmp_path / "service"
    assert hierarchy == Hierarchy(version=2, memory=own, cpu=own, pids=own)
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (own / "runner-self" / "cgroup.procs").read_text() == str(os.getpid())

    # Who has moved, or was started by one who has, finds the same place.
    membership = "0::/service/runner-self\n"
    assert find_hierarchy(mounts=mounts, membership=membership) == hierarchy

    account = CgroupAccount(hierarchy, LIMITS)
    (procs,) = account.entry_files
    group = procs.parent
    assert (group / "memory.max").read_text() == str((65536 + 2048) * 1024)
    assert (group / "pids.max").read_text() == "68"
    assert account.sample(1) == Usage(cpu_ms=1234, memory_kib=40 * 1024, out_of_memory=False)
    fill_version_2(group, oom=1, oom_kill=1)
    assert account.sample(1).out_of_memory
    # The kernel ended one of it, but not because the group's own limit was reached.
    fill_version_2(group, oom_kill=1)
    assert not account.sample(1).out_of_memory
    assert account.sample(1).killed_for_machine


def test_version_2_that_cannot_be_delegated_is_none(tmp_path):
    assert find_hierarchy(mounts=f"none {tmp_path} cgroup2 rw 0 0\n", membership="0::/\n") is None


def test_groups_of_dead_runners_are_removed(hierarchy):
    if hierarchy is None:
        pytest.skip("NO CONTROL GROUPS HERE: memory is only sampled")
    left = hierarchy.memory / "runner-999999999-1"
    left.mkdir()
    ours = hierarchy.memory / f"runner-{os.getpid()}-kept"
    ours.mkdir()
    assert find_hierarchy() == hierarchy
    assert not left.exists()
    assert ours.exists()
    ours.rmdir()


def test_proc_books_see_this_process():
    account = ProcAccount()
    seen = account.sample(os.getpid())
    assert seen.memory_kib > 5_000
    assert seen.cpu_ms > 0


def test_what_ends_between_two_looks_is_in_the_books(bench_without_groups, monkeypatch):
    """Nobody looks at all: what is told at the end has to do."""
    monkeypatch.setattr(ProcAccount, "sample", lambda self, pid: self._usage())
    source = """
import time
x = bytearray(b'x') * (80 << 20)
while time.process_time() < 0.2: pass
"""
    report = bench_without_groups.one(PYTHON, source, memory_mib=200, time_ms=2000)
    assert report.memory_kib > 80 * 1024
    assert report.exec_time_ms >= 200


def test_nothing_of_a_run_stays_a_zombie(bench):
    """Not with us, and not with somebody above us who reaps nobody."""
    subreaper = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
    assert subreaper.value == 1
    looks = iter([False] * 5)
    bench.one(PYTHON, "print(1)")
    with pytest.raises(JobStoppedError):
        bench.one(PYTHON, "import time; time.sleep(60)", should_stop=lambda: next(looks, True))
    bench.one(C, "int main(void){for(;;);}", time_ms=100)
    zombies = [
        child
        for child in psutil.Process().children()
        if child.status() == psutil.STATUS_ZOMBIE and child.name() == "bwrap"
    ]
    assert zombies == []


def test_proc_books_see_a_peak_between_two_looks():
    """Taken and given back before anybody looked."""
    source = "x = bytearray(b'x') * (80 << 20); del x; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        seen = ProcAccount().sample(process.pid)
        above = ProcAccount(walls=1).sample(process.pid)
        process.communicate(b"\n")
    assert seen.memory_kib > 80 * 1024
    assert above.memory_kib == 0  # It is all walls: no program is below it.


# --- settings ---------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch):
    for name in ("RUNNER_NAME", "RUNNER_JOBS", "RUNNER_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BACKEND_URL", "http://127.0.0.1:8080")
    monkeypatch.setenv("RUNNER_REGISTRATION_TOKEN", "s3cret")
    return monkeypatch


def test_defaults(environment):
    settings = load_settings()
    assert settings.runner_name == os.uname().nodename
    assert settings.runner_jobs == 2
    assert settings.runner_cache_dir.is_absolute()
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BACKEND_URL", "ftp://s3cret"),
        ("BACKEND_URL", ""),
        ("RUNNER_JOBS", "0"),
        ("RUNNER_JOBS", "s3cret"),
        ("RUNNER_NAME", ""),
        ("RUNNER_REGISTRATION_TOKEN", ""),
        ("RUNNER_REGISTRATION_TOKEN", "s3cret\n"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(environment, name, value):
    environment.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_missing_settings_are_all_named(environment):
    environment.delenv("BACKEND_URL")
    environment.delenv("RUNNER_REGISTRATION_TOKEN")
    with pytest.raises(SettingsError, match=r"BACKEND_URL.*RUNNER_REGISTRATION_TOKEN"):
        load_settings()
