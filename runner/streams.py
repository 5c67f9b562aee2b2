"""The file descriptors that a program is given.

Guarantees: what it reads cannot be changed by it, what it writes is kept up to a bound and
counted beyond it, and every descriptor is closed at the end of its `with`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

READ_BYTES = 1 << 16
STATUS_BYTES_MAX = 1 << 16


class Pipe:
    """A pipe, closed at the end of its `with`."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # The program's end blocks, as any program expects.
        os.set_blocking(self.write_fd, True)
        self._open = {self.read_fd, self.write_fd}

    def close_write_end(self) -> None:
        """Close our copy of the end that the program holds."""
        self._close(self.write_fd)

    def __exit__(self, *_: object) -> None:
        self._close(self.read_fd)
        self._close(self.write_fd)

    def _close(self, fd: int) -> None:
        if fd in self._open:
            self._open.remove(fd)
            os.close(fd)


class OutputPipe(Pipe):
    """A pipe whose content is kept up to `bytes_kept` and counted in `total`."""

    def __init__(self, bytes_kept: int, owner: int | None) -> None:
        super().__init__()
        if owner is not None:
            # Else opening /dev/stdout would be denied to the program's user.
            os.fchown(self.write_fd, owner, owner)
        self.kept = bytearray()
        self.total = 0
        self._bytes_kept = bytes_kept

    def __enter__(self) -> OutputPipe:
        return self

    def read(self) -> bool:
        """Take what is there, at most `READ_BYTES`; false at the end of the stream."""
        try:
            data = os.read(self.read_fd, READ_BYTES)
        except BlockingIOError:
            return True
        self.total += len(data)
        self.kept += data[: max(0, self._bytes_kept - len(self.kept))]
        return bool(data)


class StatusPipe(Pipe):
    """The pipe through which bubblewrap says how far it got. The program does not hold it."""

    def __enter__(self) -> StatusPipe:
        return self

    def text(self) -> str:
        """Return what was said so far."""
        with suppress(BlockingIOError):
            return os.read(self.read_fd, STATUS_BYTES_MAX).decode("utf-8", "replace")
        return ""


@contextmanager
def sealed_input(data: bytes) -> Iterator[int]:
    """Yield a descriptor that reads `data` from the start and that nobody can change.

    A file on disk could be opened again by a program under our own user, a pipe would need
    someone to feed it.
    """
    fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        yield fd
    finally:
        os.close(fd)
