"""The demo's processes end with it, however it ends. Each case plays in a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
WAIT_S = 30

PROLOGUE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from demo.processes import DemoFailed, Processes
folder = Path(sys.argv[1])
strays = []
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
# A daemon: its parent has ended, its session is its own.
DAEMON = [sys.executable, "-c", (
    "import os, subprocess, sys;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
    " start_new_session=True)"
)]
STUBBORN = [sys.executable, "-c", (
    "import pathlib, signal, sys, time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "pathlib.Path(sys.argv[1]).touch();"
    "time.sleep(60)"
), str(folder / "ready")]
"""


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a script; at the end of the test everything that it started is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + script, str(tmp_path)],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.communicate()


def ended(pid: int) -> bool:
    """Wait, within a bound, until the process has ended."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


def test_children_end_and_orphans_are_found_killed_and_named(
    play: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = play(
        """
with Processes(folder, strays) as processes:
    child = processes.start("sleep", SLEEP, {})
    processes.start("daemon", DAEMON, {}).process.wait()
    processes.check_alive(but=["daemon"])
import psutil
print(json.dumps([child.process.returncode, len(strays), len(psutil.Process().children(True))]))
"""
    )
    output, _ = process.communicate(timeout=WAIT_S)
    assert json.loads(output) == [-signal.SIGTERM, 1, 0]


def test_a_child_that_ignores_sigterm_or_is_stopped_ends_too(
    play: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = play(
        """
import demo.processes
demo.processes.STOP_WAIT_S = 0.5
with Processes(folder, strays) as processes:
    stubborn = processes.start("stubborn", STUBBORN, {})
    stopped = processes.start("stopped", SLEEP, {})
    os.kill(stopped.process.pid, signal.SIGSTOP)
    while not (folder / "ready").exists():
        time.sleep(0.02)
print(json.dumps([stubborn.process.returncode, stopped.process.returncode, strays]))
"""
    )
    output, _ = process.communicate(timeout=WAIT_S)
    assert json.loads(output) == [-signal.SIGKILL, -signal.SIGTERM, []]


def test_a_child_that_ends_by_itself_stops_the_demo(
    play: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = play(
        """
try:
    with Processes(folder, strays) as processes:
        processes.start("short", [sys.executable, "-c", "raise SystemExit(7)"], {}).process.wait()
        processes.check_alive(but=["short"])
        processes.check_alive()
except DemoFailed as error:
    print(error)
"""
    )
    output, _ = process.communicate(timeout=WAIT_S)
    assert output == "short ended by itself, with exit code 7\n"


def test_children_do_not_outlive_a_demo_that_is_killed(
    play: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = play(
        """
with Processes(folder, strays) as processes:
    print(processes.start("sleep", SLEEP, {}).process.pid, flush=True)
    time.sleep(60)
"""
    )
    if process.stdout is None:
        pytest.fail("no output")
    pid = int(process.stdout.readline())
    process.kill()
    process.wait(WAIT_S)
    assert ended(pid)


def test_children_get_the_given_environment_alone(
    play: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = play(
        """
os.environ["SECRET_KEY"] = "of the caller"
with Processes(folder, strays) as processes:
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    processes.start("env", [sys.executable, "-c", script], {"PORT": "1"}).process.wait()
"""
    )
    process.communicate(timeout=WAIT_S)
    environment = json.loads((tmp_path / "env.log").read_text())
    with contextlib.suppress(KeyError):
        del environment["LC_CTYPE"]  # the interpreter sets it for itself
    assert environment == {"PORT": "1"}
