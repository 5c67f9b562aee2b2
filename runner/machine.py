"""What a runner needs of its machine before it can say anything about a program.

Guarantees: looks, and changes nothing that lasts; each thing that is amiss is said in one line.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from runner.limits import KIB, MIB

# What one compiling may leave in a job's folder, and then some: BINARY_BYTES_MAX and the source.
FREE_BYTES_MIN = 80 * MIB
FREE_INODES_MIN = 200
MEMINFO = Path("/proc/meminfo")


def folder_trouble(folder: Path) -> str | None:
    """Say why programs cannot be compiled into a folder and run from there, or `None`."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"the work folder cannot be used: {error.strerror}"
    if found.f_flag & os.ST_RDONLY:
        return "the work folder's file system is read-only"
    if found.f_flag & os.ST_NOEXEC:
        return "the work folder's file system is mounted noexec"
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < FREE_BYTES_MIN:
        return (
            f"the work folder's disk is full: {free_bytes // KIB} KiB free, "
            f"{FREE_BYTES_MIN // KIB} KiB needed"
        )
    # Some file systems count no inodes.
    if found.f_files and found.f_favail < FREE_INODES_MIN:
        return f"the work folder's file system has {found.f_favail} inodes left"
    return _write_trouble(folder)


def memory_trouble(needed_kib: int) -> str | None:
    """Say that the machine has less memory than a program may use, or `None`."""
    available_kib = _available_kib()
    if available_kib is not None and available_kib < needed_kib:
        return f"the machine has {available_kib} KiB of memory left, {needed_kib} KiB are needed"
    return None


def _write_trouble(folder: Path) -> str | None:
    """Try what no number tells: quotas, a failing disk."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 64 * KIB)
            file.flush()
    except OSError as error:
        return f"the work folder cannot be written: {error.strerror}"
    return None


def _available_kib() -> int | None:
    """Return how much memory the kernel says is to be had; `None` where it does not say."""
    try:
        text = MEMINFO.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0])
    return None
