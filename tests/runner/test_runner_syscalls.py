"""The filter of system calls: where it cannot be made, that is said, and the other walls stand."""

from __future__ import annotations

import ctypes.util
import struct
import sys

import pytest

import runner.__main__
from runner import syscalls
from runner.__main__ import Unsafety
from runner.isolation import Bubblewrap, IsolationError, Unsafe
from runner.syscalls import FilterError, Filters, syscall_filter

SAFE = Unsafety(no_isolation=False, limits=False)


@pytest.fixture(autouse=True)
def bubblewrap_is_there(monkeypatch):
    monkeypatch.setattr("runner.isolation._tool", lambda name: f"/usr/bin/{name}")


def test_the_filter_is_a_program_for_the_kernel():
    made = syscall_filter()
    instructions = list(struct.iter_unpack("<HBBI", made))
    assert 50 < len(instructions) < 4096  # BPF_MAXINSNS
    assert made == syscall_filter()


def test_without_the_library_there_is_none(monkeypatch):
    monkeypatch.delitem(sys.modules, "pyseccomp", raising=False)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    with pytest.raises(FilterError, match="missing"):
        syscall_filter()


def test_on_a_kernel_without_filters_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(syscalls, "KERNEL_SUPPORT", tmp_path / "nothing")
    with pytest.raises(FilterError, match="kernel"):
        syscall_filter()


def test_a_library_that_does_not_know_a_call_makes_none(monkeypatch):
    """A filter with a hole would be taken for a whole one."""
    monkeypatch.setattr(syscalls, "REFUSED", (*syscalls.REFUSED, "a_call_of_tomorrow"))
    with pytest.raises(FilterError, match="does not know a_call_of_tomorrow"):
        syscall_filter()


def test_a_runner_without_the_filter_says_so_loudly(monkeypatch, logged):
    def fail() -> bytes:
        raise FilterError("libseccomp is missing or too old")

    monkeypatch.setattr(runner.__main__, "syscall_filters", fail)
    isolation = runner.__main__._isolation(SAFE, groups=True)
    assert isinstance(isolation, Bubblewrap)
    assert isolation.filters == Filters()
    assert "SYSTEM CALLS ARE NOT FILTERED" in logged()


def test_a_runner_with_the_filter_uses_it(logged):
    isolation = runner.__main__._isolation(SAFE, groups=True)
    assert isolation.filters.usual == syscall_filter()
    assert isolation.filters.alone == syscall_filter(alone=True) != isolation.filters.usual
    assert logged() == ""


def test_where_limits_would_not_hold_nothing_runs_unless_told(monkeypatch, logged):
    def fail() -> bytes:
        raise FilterError("this kernel filters no system calls")

    assert isinstance(runner.__main__._isolation(SAFE, groups=False), Bubblewrap)
    assert "NO CONTROL GROUPS" in logged()
    monkeypatch.setattr(runner.__main__, "syscall_filters", fail)
    with pytest.raises(IsolationError, match="--unsafe-limits"):
        runner.__main__._isolation(SAFE, groups=False)
    logged()
    unsafe = Unsafety(no_isolation=False, limits=True)
    assert isinstance(runner.__main__._isolation(unsafe, groups=False), Bubblewrap)
    assert "DO NOT HOLD" in logged()


def test_without_bubblewrap_nothing_runs_unless_told(monkeypatch, logged):
    def missing(name: str) -> str:
        raise IsolationError(f"{name} is not installed")

    monkeypatch.setattr("runner.isolation._tool", missing)
    with pytest.raises(IsolationError):
        runner.__main__._isolation(SAFE, groups=True)
    unsafe = Unsafety(no_isolation=True, limits=False)
    assert isinstance(runner.__main__._isolation(unsafe, groups=True), Unsafe)
    assert "UNSAFE" in logged()
