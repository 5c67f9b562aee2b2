"""Test data: fetched once per content, kept by its SHA-256, read case by case.

Guarantees: what is read has the hash that the job names; a half-written download is never
seen, and what a killed runner left of one is removed; the cache stays under its size. The zip is
never unpacked to disk, so no name in it can lead anywhere, and one case at a time is in memory.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from runner.archive import BadZipError, check_entries, open_archive, read_entry
from runner.wire import AtFault, TaskLimits

ARCHIVE_BYTES_MAX = 512 << 20
CASE_BYTES_MAX = 128 << 20
ENTRIES_MAX = 20_000
CACHE_BYTES_MAX = 4 << 30
LOCKS = 16
PARTIAL = "partial-"
# No download lasts that long: its runner was killed.
PARTIAL_S_MAX = 3600
OPEN_TRIES = 3

Fetch = Callable[[BinaryIO, int], None]


class TestDataError(Exception):
    """The test data cannot be had, or is not what the job says."""

    __test__ = False
    at_fault = AtFault.PROBLEM
    """One runner alone may be wrong about that; the service asks another."""


class TestData:
    """The open test data of one problem. Closing it is the caller's, by `with`."""

    __test__ = False

    def __init__(self, path: Path) -> None:
        """Raises TestDataError, and FileNotFoundError where nothing is there."""
        self._file = path.open("rb")
        try:
            self._archive = open_archive(self._file, entries_max=ENTRIES_MAX)
        except BadZipError as error:
            self._file.close()
            raise TestDataError(str(error)) from error

    def __enter__(self) -> TestData:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._archive.close()
        self._file.close()

    def require(self, tasks: Sequence[TaskLimits]) -> None:
        """Raise TestDataError, naming the file, unless every case is there, and is one file."""
        try:
            check_entries(self._archive)
        except BadZipError as error:
            raise TestDataError(str(error)) from error
        present = set(self._archive.namelist())
        for task, limits in enumerate(tasks):
            for case in range(limits.case_count):
                for suffix in ("in", "out"):
                    name = _entry_name(task, case, suffix)
                    if name not in present:
                        raise TestDataError(f"{name} is missing")

    def input(self, task: int, case: int) -> bytes:
        """Return what the program reads. Raises TestDataError."""
        return self._read(_entry_name(task, case, "in"))

    def expected(self, task: int, case: int) -> bytes:
        """Return what the program must print. Raises TestDataError."""
        return self._read(_entry_name(task, case, "out"))

    def _read(self, name: str) -> bytes:
        try:
            return read_entry(self._archive, name, bytes_max=CASE_BYTES_MAX)
        except BadZipError as error:
            raise TestDataError(str(error)) from error


class TestDataCache:
    """A folder of test data zips named by hash. Several runners may share it."""

    __test__ = False

    def __init__(self, folder: Path, *, bytes_max: int = CACHE_BYTES_MAX) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._bytes_max = bytes_max
        self._locks = tuple(threading.Lock() for _ in range(LOCKS))
        self._sweep()

    def open(self, sha256: str, fetch: Fetch) -> TestData:
        """Open the test data with this hash, calling `fetch(sink, bytes_max)` if it is not here.

        `fetch` runs at most once at a time per hash. Raises TestDataError, and what it raises.
        """
        lock = self._locks[int(sha256[:4], 16) % LOCKS]
        path = self._folder / f"{sha256}.zip"
        with lock:
            data = self._open(path, sha256, fetch)
        self._evict()
        return data

    def _open(self, path: Path, sha256: str, fetch: Fetch) -> TestData:
        for _ in range(OPEN_TRIES):
            # Another runner that shares the folder may evict the file at any moment.
            with suppress(FileNotFoundError):
                # Hashed on every use: a file on disk may rot or be changed, a verdict may not.
                if not path.exists() or _sha256_of(path) != sha256:
                    self._download(path, sha256, fetch)
                os.utime(path)
                return TestData(path)
        raise TestDataError("the test data are removed from the cache as fast as they are fetched")

    def _download(self, path: Path, sha256: str, fetch: Fetch) -> None:
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=PARTIAL)
        partial = Path(name)
        try:
            with os.fdopen(handle, "w+b") as sink:
                fetch(sink, ARCHIVE_BYTES_MAX)
            if _sha256_of(partial) != sha256:
                raise TestDataError("the download does not have the hash that the job names")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def _evict(self) -> None:
        """Remove the longest unused down to the bound. Whoever has one open keeps reading it."""
        entries = []
        for path in self._folder.glob("*.zip"):
            # Another runner that shares the folder may have removed it since.
            with suppress(FileNotFoundError):
                stat = path.stat()
                entries.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in entries) + self._partial_bytes()
        for _, size, path in sorted(entries)[:-1]:
            if total <= self._bytes_max:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _partial_bytes(self) -> int:
        """The size of the downloads under way, which take room too."""
        total = 0
        for path in self._folder.glob(f"{PARTIAL}*"):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def _sweep(self) -> None:
        """Remove what killed runners left of their downloads."""
        oldest = time.time() - PARTIAL_S_MAX
        for path in self._folder.glob(f"{PARTIAL}*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


def _entry_name(task: int, case: int, suffix: str) -> str:
    return f"{task:02d}{case:02d}.{suffix}"


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
