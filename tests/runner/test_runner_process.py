"""The runner as a process: start, signals, and every way it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.runner.fake_service import (
    REGISTRATION_TOKEN,
    SIGNATURE,
    TOKEN,
    FakeService,
    serving,
)

ROOT = Path(__file__).parents[2]
RIGHT = b"print(int(input()) + 1)"
CASE = (b"1\n", b"2\n")
# It ends when told to by the test, which may send signals to what the runner has started.
UNTIL_TOLD = b"""
import os, signal, time
def told(*_):
    print(2, flush=True)
    os._exit(0)
signal.signal(signal.SIGUSR1, told)
while True:
    time.sleep(60)
"""
USR1_CAUGHT = 1 << (signal.SIGUSR1 - 1)
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def start(service, tmp_path, bench) -> Iterator[Start]:
    """Start `python -m runner` for the fake service; whatever is left is killed."""
    started: list[subprocess.Popen[str]] = []
    with serving(service) as url:

        def start_one(*options: str, **environment: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "runner", *options],
                cwd=ROOT,
                env={
                    "PATH": os.environ["PATH"],
                    "BACKEND_URL": url,
                    "RUNNER_REGISTRATION_TOKEN": REGISTRATION_TOKEN,
                    "RUNNER_NAME": "runner-under-test",
                    "RUNNER_CACHE_DIR": str(tmp_path / "cache"),
                    "TMPDIR": _passable(tmp_path / "tmp"),
                    **environment,
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(process)
            return process

        yield start_one
        for process in started:
            process.kill()
            print(process.communicate()[1])


def _passable(folder: Path) -> str:
    """Make a folder that programs' users can pass through, as they can through /tmp."""
    folder.mkdir(exist_ok=True)
    for parent in (folder, *folder.parents):
        if parent.owner() != "root" or parent.stat().st_mode & 0o7 < 0o5:
            parent.chmod(parent.stat().st_mode | 0o011)
    return str(folder)


def end(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]]]:
    """Wait for the end; return the exit code and the log, every line of which is JSON."""
    _, stderr = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in stderr.splitlines()]


def events(log: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in log]


def test_a_job_and_a_drain(start, service, tmp_path):
    service.add_job("jb_1", RIGHT, CASE)
    process = start()
    (result,) = service.wait_for("complete")
    assert [[case["status"] for case in cases] for cases in result["tasks"]] == [["AC"]]
    service.wait_for("heartbeat", 2)
    process.send_signal(signal.SIGTERM)
    code, log = end(process)
    assert code == 0
    for event in ("ready", "registered", "leased", "compiled", "judged", "completed", "finished"):
        assert event in events(log)
    assert service.got("register") == [
        {
            "registration_token": REGISTRATION_TOKEN,
            "name": "runner-under-test",
            "languages": [0, 1, 2],
        }
    ]
    told = json.dumps(log)
    for secret in (TOKEN, REGISTRATION_TOKEN, SIGNATURE, "lt_of_"):
        assert secret not in told
    assert list((tmp_path / "tmp").iterdir()) == []


def test_one_asked_to_drain_finishes_what_runs_and_ends_with_0(start, service):
    service.add_job("jb_1", UNTIL_TOLD, CASE, time_ms=60_000)
    process = start(RUNNER_JOBS="2")
    program = _wait_for_program(process, service)
    service.drain = True
    # Its beats may go unanswered where the machine is busy.
    asked = next(line for line in process.stderr if '"asked_to_drain"' in line)
    service.add_job("jb_2", RIGHT, CASE)
    assert process.poll() is None
    _tell(program)
    (result,) = service.wait_for("complete")
    code, log = end(process)
    assert (code, result["job_id"]) == (0, "jb_1")
    assert events([json.loads(asked), *log]).count("asked_to_drain") == 1
    assert service.got("abort") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_job_finishes_under_heartbeats(start, service, number):
    service.add_job("jb_1", UNTIL_TOLD, CASE, time_ms=60_000)
    process = start()
    program = _wait_for_program(process, service)
    process.send_signal(number)
    beats = len(service.got("heartbeat"))
    service.wait_for("heartbeat", beats + 2)
    assert process.poll() is None
    _tell(program)
    (result,) = service.wait_for("complete")
    assert result["tasks"][0][0]["status"] == "AC"
    code, _ = end(process)
    assert code == 0
    later = service.got("heartbeat")[beats:]
    assert {"jb_1"} <= {job for beat in later for job in beat["active_job_ids"]}


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once_with_its_jobs_given_back(start, service, second):
    for name in ("jb_1", "jb_2"):
        service.add_job(name, b"import time\ntime.sleep(60)", time_ms=60_000)
    process = start(RUNNER_JOBS="2")
    service.wait_for("next-job", 2)
    program = _wait_for_program(process, service)
    process.send_signal(signal.SIGTERM)
    beats = len(service.got("heartbeat"))
    service.wait_for("heartbeat", beats + 3)
    assert process.poll() is None
    started = time.monotonic()
    process.send_signal(second)
    code, log = end(process)
    assert time.monotonic() - started < 10
    assert code == 0
    assert _gone(program)
    aborts = {(abort["job_id"], abort["reason"]) for abort in service.got("abort")}
    assert aborts == {("jb_1", "drain"), ("jb_2", "drain")}
    assert service.got("complete") == []
    assert "told_to_end_at_once" in events(log)


def test_a_second_signal_waits_for_no_service(start, service):
    """It is away while a result is resent."""
    service.add_job("jb_1", RIGHT, CASE)
    service.answers["complete"] = deque([503] * 99)
    service.answers["abort"] = deque([503] * 99)
    process = start()
    service.wait_for("complete")
    process.send_signal(signal.SIGTERM)
    service.wait_for("complete", 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=15)  # All the resends would take longer.
    assert process.returncode == 0


def test_after_a_crash_it_says_who_it_was(start, service, tmp_path):
    first = start()
    service.wait_for("next-job")
    (identity,) = (tmp_path / "cache").glob("identity-*")
    assert identity.stat().st_mode & 0o777 == 0o600
    # One that runs beside it in the same folder is somebody else.
    second = start()
    service.wait_for("register", 2)
    first.kill()
    first.wait()
    third = start()
    bodies = service.wait_for("register", 3)
    former = {"runner_id": "rn_1", "token": TOKEN}
    assert [body.get("replaces") for body in bodies] == [None, None, former]
    for process in (second, third):
        service.wait_for("next-job")
        process.send_signal(signal.SIGTERM)
        _, log = end(process)
        assert TOKEN not in json.dumps(log)
    assert all(path.read_bytes() == b"" for path in (tmp_path / "cache").glob("identity-*"))
    # An orderly end leaves nothing to replace.
    start()
    assert "replaces" not in service.wait_for("register", 4)[3]


@pytest.mark.parametrize("refusal", [400, 401])
def test_a_service_that_takes_no_successor_gets_a_newcomer(start, service, tmp_path, refusal):
    first = start()
    service.wait_for("next-job")
    first.kill()
    first.wait()
    service.answers["register"] = deque([refusal])
    start()
    _, former, newcomer = service.wait_for("register", 3)
    assert "replaces" in former
    assert "replaces" not in newcomer
    service.wait_for("next-job", 2)


def test_every_slot_has_a_core_of_its_own(start, service):
    cores = sorted(os.sched_getaffinity(0))
    asked = len(cores) + 1
    for number in range(asked):
        service.add_job(f"jb_{number}", b"import time\ntime.sleep(60)", time_ms=60_000)
    process = start(RUNNER_JOBS=str(asked))
    service.wait_for("next-job", len(cores))
    programs = _programs(process, len(cores))
    assert sorted(tuple(os.sched_getaffinity(program.pid)) for program in programs) == [
        (core,) for core in cores
    ]
    # One more than there are cores is not there at all.
    assert len(service.offers) == 1
    process.send_signal(signal.SIGTERM)
    # Two signals at once are one.
    beats = len(service.got("heartbeat"))
    service.wait_for("heartbeat", beats + 2)
    process.send_signal(signal.SIGTERM)
    _, log = end(process)
    assert "fewer_slots_than_asked" in events(log)


def test_cores_are_shared_where_a_setting_says_so(start, service):
    asked = len(os.sched_getaffinity(0)) + 1
    for number in range(asked):
        service.add_job(f"jb_{number}", b"import time\ntime.sleep(60)", time_ms=60_000)
    process = start(RUNNER_JOBS=str(asked), RUNNER_SHARE_CORES="true")
    service.wait_for("next-job", asked)
    assert len(_programs(process, asked)) == asked


def test_two_unauthorized_heartbeats_end_it_and_its_programs(start, service):
    service.add_job("jb_1", b"import time\ntime.sleep(60)", time_ms=60_000)
    process = start()
    program = _wait_for_program(process, service)
    service.answers["heartbeat"] = deque([401] * 9)
    code, log = end(process)
    assert code == 5
    assert any("identity_lost" in event for event in events(log))
    assert _gone(program)
    assert service.got("complete") == []


def test_a_lost_identity_ends_the_resending_too(start, service):
    service.answers["complete"] = deque([503] * 99)
    service.add_job("jb_1", RIGHT, CASE)
    process = start()
    service.wait_for("complete", 3)
    service.answers["heartbeat"] = deque([401] * 9)
    code, log = end(process)
    assert code == 5
    assert "jobs_left_behind" not in events(log)


@pytest.mark.parametrize("options", [(), ("--unsafe-no-isolation",)])
def test_a_killed_runner_leaves_no_program(start, service, options):
    service.add_job("jb_1", b"import time\ntime.sleep(60)", time_ms=60_000)
    process = start(*options)
    program = _wait_for_program(process, service)
    process.kill()
    assert _gone(program)


def test_a_killed_runner_leaves_nothing_of_its_programs_users(start, service):
    """bubblewrap that is killed in its first moments leaves what it has started running."""
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: what a killed runner leaves is NOT tested here")
    service.add_job("jb_1", b"import time\ntime.sleep(60)", time_ms=60_000)
    process = start()
    program = _wait_for_program(process, service)
    user = str(program.uids().real)
    left = psutil.Popen(["setpriv", "--reuid", user, "--clear-groups", "sleep", "60"])
    assert _is_of(left, int(user))
    process.kill()
    assert _gone(program)
    assert left.wait(30) == -signal.SIGKILL


def test_a_drained_runner_leaves_nothing_either(start, service):
    process = start()
    service.wait_for("next-job")
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 0
    assert all(_gone(child) for child in below)


def test_lost_jobs_are_stopped(start, service):
    service.add_job("jb_1", b"import time\ntime.sleep(60)", time_ms=60_000)
    process = start()
    program = _wait_for_program(process, service)
    service.lost.add("jb_1")
    assert _gone(program)
    process.send_signal(signal.SIGTERM)
    code, log = end(process)
    assert code == 0
    assert "lease_lost" in events(log)
    assert service.got("complete") + service.got("abort") == []


def test_several_jobs_at_once_but_no_more_than_the_service_allows(start, service):
    service.config["max_concurrent_jobs"] = 1
    for name in ("jb_1", "jb_2"):
        service.add_job(name, b"import time\ntime.sleep(0.3)\nprint(2)", CASE)
    process = start(RUNNER_JOBS="2")
    service.wait_for("complete", 2)
    beats = [beat["active_job_ids"] for beat in service.got("heartbeat")]
    assert max(map(len, beats)) == 1
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 0


def test_a_refused_registration(start, service):
    service.answers["register"] = deque([401])
    process = start()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 4
    assert stderr.splitlines()[-1] == "runner: cannot register: the service answered 401"


def test_a_signal_ends_the_wait_for_a_service_that_is_away(start):
    process = start(BACKEND_URL="http://127.0.0.1:1")
    for line in process.stderr:
        if '"ready"' in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=25)  # All the tries would take 31 s.
    assert process.returncode == 0


def test_a_wrong_setting_stops_the_start(start):
    process = start(RUNNER_JOBS="many")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert len(stderr.splitlines()) == 1
    assert "RUNNER_JOBS" in stderr


@pytest.mark.parametrize("unsafe", [False, True])
def test_without_bubblewrap_it_runs_nothing_unless_told(start, service, tmp_path, unsafe):
    """A machine without bubblewrap: one whose PATH for tools has all but that."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("env", "setpriv", "prlimit", "true", "python3"):
        (tools / name).symlink_to(Path("/usr/bin", name).resolve())
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        f"import runner.isolation\nrunner.isolation.SYSTEM_PATH = {str(tools)!r}\n"
    )
    options = ["--unsafe-no-isolation"] if unsafe else []
    service.add_job("jb_1", RIGHT, CASE)
    process = start(*options, PYTHONPATH=f"{site}:{ROOT}")
    if not unsafe:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 3
        assert stderr.splitlines()[-1].startswith("runner: programs cannot be isolated here: bwrap")
        assert service.got("register") == []
        return
    (result,) = service.wait_for("complete")
    assert result["tasks"][0][0]["status"] == "AC"
    process.send_signal(signal.SIGTERM)
    code, log = end(process)
    assert code == 0
    assert sum("WITHOUT ISOLATION" in event for event in events(log)) == 1


def _wait_for_program(process: subprocess.Popen[str], service: FakeService) -> psutil.Process:
    """Wait until a submission's Python program runs below the runner."""
    service.wait_for("next-job")  # Before that the runner tries known programs.
    runner = psutil.Process(process.pid)
    for _ in range(3000):
        for child in runner.children(recursive=True):
            try:
                if child.cmdline()[:2] == ["python3", "-B"]:
                    return child
            except (psutil.Error, IndexError):
                continue
        psutil.wait_procs([runner], timeout=0.01)
    raise AssertionError("no program was started")


def _programs(process: subprocess.Popen[str], count: int) -> list[psutil.Process]:
    """Wait until so many submissions' Python programs run below the runner."""
    runner = psutil.Process(process.pid)
    for _ in range(3000):
        found = []
        for child in runner.children(recursive=True):
            with suppress(psutil.Error):
                if child.cmdline()[:2] == ["python3", "-B"]:
                    found.append(child)
        if len(found) == count:
            return found
        psutil.wait_procs([runner], timeout=0.01)
    raise AssertionError("not so many programs were started")


def _tell(program: psutil.Process) -> None:
    """Send the signal as soon as the program catches it."""
    for _ in range(3000):
        status = Path(f"/proc/{program.pid}/status").read_text()
        if int(status.partition("SigCgt:")[2].split()[0], 16) & USR1_CAUGHT:
            program.send_signal(signal.SIGUSR1)
            return
        psutil.wait_procs([program], timeout=0.01)
    raise AssertionError("the program catches no signal")


def _is_of(process: psutil.Process, user: int) -> bool:
    """Wait until the process has become the user's."""
    for _ in range(3000):
        if process.uids().real == user:
            return True
        time.sleep(0.01)
    return False


def _gone(program: psutil.Process) -> bool:
    gone, _ = psutil.wait_procs([program], timeout=30)
    return bool(gone)
