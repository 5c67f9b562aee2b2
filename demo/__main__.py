"""`python -m demo`: start everything, play the scenario, compare, end everything.

Guarantees: the exit code is 0 only if every verdict, score and counter is what `demo.course` says
and no process had to be killed at the end; 1 otherwise, and 128 + the signal's number after
Ctrl-C or SIGTERM. All files go into one fresh folder that is removed.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from demo.course import COUNTERS, STANDINGS, SUBMISSIONS
from demo.processes import Child, DemoFailed, Processes, free_port
from demo.report import Report
from demo.scenario import Scenario
from demo.service import Service

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROBE_WAIT_S = 10
# Shorter than the defaults, so that the reclaim can be watched.
TIMING = {"LEASE_TTL_S": "4", "HEARTBEAT_INTERVAL_S": "1", "POLL_INTERVAL_S": "1"}


class Interrupted(BaseException):
    """A signal asks the demo to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> int:
    """Run the demo and return its exit code."""
    report = Report()
    if sys.platform != "linux":
        report.bad("The demo needs Linux.")
        return 1
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    started = time.monotonic()
    strays: list[str] = []
    try:
        differences = _run(report, strays)
        code = _verdict(report, differences)
    except DemoFailed as error:
        report.bad(str(error))
        code = 1
    except Interrupted as interrupted:
        report.bad(f"Interrupted by {signal.Signals(interrupted.number).name}.")
        code = 128 + interrupted.number
    if strays:
        report.bad(f"Left behind, and killed now: {', '.join(strays)}.")
        code = code or 1
    else:
        report.note("No process is left behind.")
    report.note(f"{time.monotonic() - started:.1f} s, exit code {code}")
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


def _verdict(report: Report, differences: list[str]) -> int:
    if differences:
        for difference in differences:
            report.bad(difference)
        report.bad(f"{len(differences)} differences.")
        return 1
    standings = sum(map(len, STANDINGS.values()))
    report.good(
        f"All agree: {len(SUBMISSIONS)} verdicts with their scores, {len(COUNTERS)} users'"
        f" counters, {standings} standings, 1 reclaim."
    )
    return 0


def _run(report: Report, strays: list[str]) -> list[str]:
    """Play the scenario in a fresh folder; what had to be killed at its end goes into `strays`."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        folder = Path(name)
        try:
            with Processes(folder, strays) as processes:
                return _play(report, processes, folder)
        except DemoFailed:
            for log in sorted(folder.glob("*.log")):
                report.log(log)
            raise


def _play(report: Report, processes: Processes, folder: Path) -> list[str]:
    base_url = f"http://127.0.0.1:{free_port()}"
    admin_key = f"ak_{secrets.token_urlsafe(32)}"
    registration_token = secrets.token_urlsafe(32)
    environment = _environment(folder)
    isolation = _isolation_arguments(report)
    processes.start(
        "service",
        [sys.executable, "serve.py"],
        environment
        | TIMING
        | {
            "DATA_DIR": str(folder / "data"),
            "HOST": "127.0.0.1",
            "PORT": base_url.rpartition(":")[2],
            "ADMIN_API_KEY": admin_key,
            "RUNNER_REGISTRATION_TOKEN": registration_token,
        },
    )

    def start_runner(name: str) -> Child:
        return processes.start(
            name,
            [sys.executable, "-m", "runner", *isolation],
            environment
            | {
                "BACKEND_URL": base_url,
                "RUNNER_REGISTRATION_TOKEN": registration_token,
                "RUNNER_NAME": name,
                "RUNNER_JOBS": "2",
                "RUNNER_CACHE_DIR": str(folder / f"{name}-cache"),
            },
        )

    with Service(base_url, admin_key) as service:
        return Scenario(
            service=service, processes=processes, report=report, start_runner=start_runner
        ).run()


def _environment(folder: Path) -> dict[str, str]:
    """Return what every child gets: settings of the caller's shell must not change the demo."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    scratch = folder / "tmp"
    scratch.mkdir()
    # The programs of students run as other users, which must be able to pass through.
    folder.chmod(0o711)
    scratch.chmod(0o1777)
    return {**kept, "TMPDIR": str(scratch)}


def _isolation_arguments(report: Report) -> list[str]:
    """Return the runner's arguments: none where programs can be isolated on this machine."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        why = "bubblewrap (bwrap) is not installed"
    elif not _works([bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"]):
        why = "bubblewrap (bwrap) cannot make namespaces here"
    else:
        return []
    report.loud(f"NO ISOLATION: {why}; the demo's programs run with this user's rights")
    return ["--unsafe-no-isolation"]


def _works(argv: list[str]) -> bool:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=PROBE_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
