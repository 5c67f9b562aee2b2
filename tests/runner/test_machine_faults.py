"""What a broken machine makes of a right program: nothing that a student is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.cgroup import find_hierarchy
from tests.runner.machine_faults import FAULTS

ROOT = Path(__file__).parents[2]
CASES = [(name, language) for name, fault in FAULTS.items() for language in fault.languages]
NAMES = ("C", "C++", "Python")


@pytest.fixture(scope="module", autouse=True)
def a_machine_to_break() -> None:
    if os.geteuid() != 0 or shutil.which("bwrap") is None:
        pytest.skip("NOT ROOT, OR NO BUBBLEWRAP: machine faults are NOT tested here")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("NO MOUNT NAMESPACES: machine faults are NOT tested here")
    hierarchy = find_hierarchy()
    if hierarchy is None or hierarchy.version != 1:
        pytest.skip("NO CONTROL GROUPS OF VERSION 1: machine faults are NOT tested here")


def judge_on_a_broken_machine(name: str, language: int) -> tuple[dict, str]:
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private"),
            *(sys.executable, "-m", "tests.runner.broken_machine", name, str(language)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("name", "language"), CASES, ids=[f"{name}, {NAMES[language]}" for name, language in CASES]
)
def test_a_machines_fault_is_no_verdict(name, language):
    fault = FAULTS[name]
    told, log = judge_on_a_broken_machine(name, language)
    if fault.healed:
        assert (told["completed"], told["aborted"]) == ([["AC"]], []), log[-3000:]
    else:
        assert (told["completed"], told["aborted"]) == ([], ["prep_failed"]), log[-3000:]
    assert re.search(fault.words, log), log[-3000:]


def test_there_are_faults_enough():
    assert len(FAULTS) >= 25
