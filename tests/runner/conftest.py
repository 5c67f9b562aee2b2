"""Real compilers and real isolation for the runner's tests."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.cgroup import Hierarchy, find_hierarchy
from runner.executor import Executor
from runner.isolation import Bubblewrap, Isolation, Slot, Unsafe, release_slots, reserve_slots
from runner.syscalls import syscall_filters
from runner.workspace import WorkRoot
from tests.runner.support import Bench


@pytest.fixture
def logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Callable[[], str]:
    """What was logged: printed, or, where an earlier test has set logging up, as records."""
    caplog.set_level(logging.DEBUG)  # That test may have set another.

    def text() -> str:
        printed = capsys.readouterr()
        return printed.out + printed.err + caplog.text

    return text


@pytest.fixture(scope="session")
def slot() -> Iterator[Slot]:
    slots = reserve_slots(1, as_root=os.geteuid() == 0)
    yield slots[0]
    release_slots(slots)


@pytest.fixture(scope="session")
def hierarchy() -> Hierarchy | None:
    return find_hierarchy()


@pytest.fixture(scope="session")
def work_root() -> Iterator[WorkRoot]:
    root = WorkRoot()
    yield root
    root.close()


def _bench(
    isolation: Isolation,
    hierarchy: Hierarchy | None,
    work_root: WorkRoot,
    slot: Slot,
    folder: Path,
) -> Bench:
    executor = Executor(isolation=isolation, work_root=work_root, hierarchy=hierarchy)
    return Bench(executor=executor, slot=slot, folder=folder)


def _needs_bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("BUBBLEWRAP IS MISSING: the runner's isolation is NOT tested here")


@pytest.fixture
def bench(hierarchy, work_root, slot, tmp_path) -> Bench:
    """Isolation as in production: bubblewrap, and control groups where there are any."""
    _needs_bubblewrap()
    return _bench(Bubblewrap(syscall_filters()), hierarchy, work_root, slot, tmp_path)


@pytest.fixture
def bench_without_groups(work_root, slot, tmp_path) -> Bench:
    """Bubblewrap on a machine that gives no control groups."""
    _needs_bubblewrap()
    return _bench(Bubblewrap(syscall_filters()), None, work_root, slot, tmp_path)


@pytest.fixture
def unsafe_bench(work_root, slot, tmp_path) -> Bench:
    """No walls and no control groups."""
    return _bench(Unsafe(), None, work_root, slot, tmp_path)
