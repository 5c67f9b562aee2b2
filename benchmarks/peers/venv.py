"""The environment of the peers: `.bench-venv`, from `benchmarks/requirements.txt`, made once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import ROOT, Missing

FOLDER = ROOT / ".bench-venv"
REQUIREMENTS = ROOT / "benchmarks" / "requirements.txt"
SCRIPTS = ROOT / "benchmarks" / "peers"
RUN_S_MAX = 900


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerVenv:
    """An interpreter that has the peers."""

    python: Path

    @classmethod
    def open(cls) -> PeerVenv:
        """Make the environment if it is not there or its requirements have changed.

        Raises:
            Missing: the packages could not be installed.
        """
        python, stamp = FOLDER / "bin" / "python", FOLDER / ".made-from"
        wanted = REQUIREMENTS.read_text()
        if not (stamp.is_file() and stamp.read_text() == wanted):
            make = [sys.executable, "-m", "venv", "--clear", str(FOLDER)]
            install = [str(python), "-m", "pip", "install", "--quiet", "--no-input"]
            install += ["--disable-pip-version-check", "--requirement", str(REQUIREMENTS)]
            for command in (make, install):
                made = subprocess.run(command, capture_output=True, text=True, check=False)
                if made.returncode:
                    raise Missing(f"the peers could not be installed: {made.stderr[-500:]}")
            stamp.write_text(wanted)
        return cls(python=python)

    def run(self, script: str, *arguments: str) -> list[float]:
        """Run one of the scripts; return the numbers that it prints.

        Raises:
            Missing: it failed; the message has its last words.
        """
        command = [str(self.python), str(SCRIPTS / f"{script}.py"), *arguments]
        try:
            ran = subprocess.run(
                command, cwd=SCRIPTS, capture_output=True, text=True, check=False, timeout=RUN_S_MAX
            )
        except subprocess.TimeoutExpired:
            raise Missing(f"{script} did not end within {RUN_S_MAX} s") from None
        if ran.returncode:
            raise Missing(f"{script} failed: {ran.stderr[-1500:]}")
        return _numbers(ran.stdout.splitlines())


def _numbers(lines: Sequence[str]) -> list[float]:
    return [float(number) for number in json.loads(lines[-1])]
