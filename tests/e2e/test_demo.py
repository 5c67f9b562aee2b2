"""The demo's scenario whole, on a real MongoDB, and its ways to end early."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo.course import SUBMISSIONS
from mongo.embedded import find_mongod

ROOT = Path(__file__).parents[2]
RUN_WAIT_S = 170

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_mongod() is None, reason="no mongod on this machine"),
]

# Starts the demo as the subreaper of all that it leaves: argv is the line of the demo's output
# after which to send the signal, and that signal. Prints what was still there at its end.
WATCHER = """
import ctypes, json, signal, subprocess, sys, time
import psutil
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
wanted, number = sys.argv[1], int(sys.argv[2])
demo = subprocess.Popen(
    [sys.executable, "-m", "demo"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
)
lines, seen = [], 0
for line in demo.stdout:
    lines.append(line.rstrip())
    if wanted and wanted in line:
        wanted = ""
        seen = len(psutil.Process().children(recursive=True))
        demo.send_signal(number)
code = demo.wait()
living = lambda: [p for p in psutil.Process().children(recursive=True)
                  if p.status() != psutil.STATUS_ZOMBIE]
deadline = time.monotonic() + (20 if number == signal.SIGKILL else 0)
while living() and time.monotonic() < deadline:
    time.sleep(0.1)
left = [" ".join(p.cmdline()) for p in living()]
for p in living():
    p.kill()
print(json.dumps({"code": code, "lines": lines, "left": left, "seen": seen}))
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a demo ended, what it printed, which processes it left, how many it had before."""

    code: int
    lines: Sequence[str]
    left: Sequence[str]
    seen: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty folder that other users may pass through, as the slots' users must."""
    with tempfile.TemporaryDirectory(prefix="demo-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def run_demo(scratch: Path, *, after: str = "", send: int = 0) -> Ended:
    done = subprocess.run(
        [sys.executable, "-c", WATCHER, after, str(send)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=RUN_WAIT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"the watcher failed: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return Ended(**answer)


def test_the_scenario_agrees_with_the_course_and_leaves_nothing(scratch: Path) -> None:
    ended = run_demo(scratch)
    assert ended.code == 0, ended.text
    assert ended.left == []
    assert "No process is left behind." in ended.text
    assert "All agree: 34 verdicts" in ended.text
    assert "killed with SIGKILL" in ended.text
    assert "reclaim" in ended.text
    for row in SUBMISSIONS:
        (line,) = (line for line in ended.lines if line.strip().startswith(row.submission_id + " "))
        assert f" {row.verdict} " in line
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(scratch: Path, number: signal.Signals) -> None:
    # Both runners are at work on programs by then.
    ended = run_demo(scratch, after="killed with SIGKILL", send=number)
    assert ended.seen > 3
    assert ended.code == 128 + number, ended.text
    assert ended.left == []
    assert f"Interrupted by {number.name}." in ended.text
    assert "No process is left behind." in ended.text
    assert list(scratch.iterdir()) == []


def test_a_killed_demo_takes_its_processes_with_it(scratch: Path) -> None:
    ended = run_demo(scratch, after="programs are handed in on time", send=signal.SIGKILL)
    assert ended.seen > 3
    assert ended.code == -signal.SIGKILL
    assert ended.left == []
