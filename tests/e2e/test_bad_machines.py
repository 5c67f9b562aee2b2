"""Broken judge machines beside a sound one, all with the real runner and real compilers: students
get right verdicts, and the broken machines say what they cannot judge.

BAD_MACHINES=all breaks every machine of the table; else three are broken.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_checks import CPP, PROGRAMS, PYTHON, C, submit, verdict
from tests.live import ROOT, LiveService, prepare

COVER = 'for tool in {tools}; do mount --bind "$EMPTY" "$(readlink -f "$(command -v $tool)")"; done'
MACHINES: dict[str, tuple[str, set[int]]] = {
    # What breaks it, in a mount namespace of its own; the languages it can still judge.
    "disk of 64 KiB": ('mount -t tmpfs -o size=64k,mode=755 tmpfs "$TMPDIR"', set()),
    "compilers gone": (COVER.format(tools="gcc g++"), {PYTHON}),
    "python gone": (COVER.format(tools="/usr/bin/python3"), {C, CPP}),
    "noexec": ('mount -t tmpfs -o size=512m,noexec,mode=755 tmpfs "$TMPDIR"', set()),
    "disk read-only": ('mount -t tmpfs -o size=1m,ro,mode=755 tmpfs "$TMPDIR"', set()),
    "no headers": ("mount -t tmpfs -o ro tmpfs /usr/include", {PYTHON}),
    "no linker": (COVER.format(tools="ld"), {PYTHON}),
    "few inodes": ('mount -t tmpfs -o size=512m,nr_inodes=4,mode=755 tmpfs "$TMPDIR"', set()),
}
USUAL = ("disk of 64 KiB", "compilers gone", "noexec")
NAMED_S_MAX = 60
EACH = 4


@pytest.fixture(autouse=True)
def a_machine_to_break() -> None:
    if os.geteuid() != 0 or shutil.which("bwrap") is None:
        pytest.skip("NOT ROOT, OR NO BUBBLEWRAP: broken machines are NOT tested here")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("NO MOUNT NAMESPACES: broken machines are NOT tested here")


@contextmanager
def machine(service: LiveService, folder: Path, name: str, breaking: str = "") -> Iterator[None]:
    """One judge machine with a reference runner, broken by the command."""
    for part in ("tmp", "cache"):
        (folder / part).mkdir(parents=True)
    (folder / "empty").touch()
    # Programs run as other users.
    for above in (folder, *folder.parents[:4]):
        above.chmod(above.stat().st_mode | 0o011)
    environment = os.environ | {
        "BACKEND_URL": service.url,
        "RUNNER_REGISTRATION_TOKEN": service.environment["RUNNER_REGISTRATION_TOKEN"],
        "RUNNER_NAME": name,
        "RUNNER_CACHE_DIR": str(folder / "cache"),
        "RUNNER_SHARE_CORES": "1",
        "TMPDIR": str(folder / "tmp"),
        "EMPTY": str(folder / "empty"),
    }
    script = f'set -e; {breaking or "true"}; exec "{sys.executable}" -m runner'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with (folder / "runner.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                process.kill()
                process.wait()


def named(admin: httpx.Client) -> dict[str, Any]:
    return {one["name"]: one for one in admin.get("/runners").json()}


@pytest.mark.timeout(300)
def test_i9_beside_broken_machines_students_get_right_verdicts(
    live_service: LiveService, tmp_path: Path
) -> None:
    names = MACHINES if os.environ.get("BAD_MACHINES") == "all" else USUAL
    with live_service.admin() as admin, ExitStack() as stack:
        prepare(admin)
        for number, name in enumerate(names):
            folder = tmp_path / f"bad{number}"
            stack.enter_context(machine(live_service, folder, name, MACHINES[name][0]))
        started = time.monotonic()
        expected = {name: MACHINES[name][1] for name in names}
        told: dict[str, set[int]] = {}
        while told != expected:
            assert time.monotonic() - started < NAMED_S_MAX + 30 * len(expected), told
            time.sleep(0.5)
            told = {name: set(one["languages"]) for name, one in named(admin).items()}
        # They are the first, and are given what they say they can judge.
        ids = [submit(admin, language) for language in PROGRAMS for _ in range(EACH)]
        stack.enter_context(machine(live_service, tmp_path / "good", "sound"))
        assert [verdict(admin, one) for one in ids] == ["AC"] * len(ids)
        for one in ids:
            history = admin.get(f"/submissions/{one}").json()["job"]["history"]
            assert "exhaust_begins" not in {entry["event"] for entry in history}
