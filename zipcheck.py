"""What every zip that comes from outside must keep to, at the service and at the runner alike.

Guarantees: a zip is opened only if its directory is small enough to be read into memory and the
file holds the zip and nothing else; an entry is unpacked piece by piece, no further than its
reader allows, whatever it claims, and only if it is what it claims. Nothing is ever extracted to a
path.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

END_MAGIC = b"PK\x05\x06"
ZIP64_MAGIC = b"PK\x06\x07"
END_BYTES = 22
ZIP64_LOCATOR_BYTES = 20
COMMENT_BYTES_MAX = 0xFFFF
PIECE_BYTES = 64 * 1024
ENCRYPTED_FLAG = 0x1

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The others unpack without a bound on a piece's size, or fail in ways of their own."""


class BadZipError(ValueError):
    """The zip is not taken; the message says why, naming the entry where it is one's fault."""


def open_zip(file: IO[bytes], *, directory_bytes_max: int) -> zipfile.ZipFile:
    """Open a zip after a look at its end. Closing `file` stays the caller's.

    Raises:
        BadZipError: it is none, its directory is larger than `directory_bytes_max`, or the file
            holds more than the zip.
    """
    _check_end(file, directory_bytes_max)
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError) as error:
        raise BadZipError("not a readable zip") from error


def check_entry(entry: zipfile.ZipInfo) -> None:
    """Raise BadZipError unless an entry is an ordinary file that can be unpacked with bounds."""
    name = entry.filename
    if entry.flag_bits & ENCRYPTED_FLAG:
        raise BadZipError(f"{name!r} is encrypted")
    if entry.compress_type not in METHODS:
        raise BadZipError(f"{name!r} is neither stored nor deflated")
    mode = entry.external_attr >> 16
    if entry.is_dir() or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
        raise BadZipError(f"{name!r} is not a regular file")


def unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, *, bytes_max: int) -> Iterator[bytes]:
    """Yield an entry's content piece by piece, and never more than it claims.

    Raises:
        BadZipError: it claims more than `bytes_max`, is damaged, or is not what it claims.
    """
    name, size = entry.filename, 0
    check_entry(entry)
    if entry.file_size > bytes_max:
        raise BadZipError(f"{name!r} unpacks to more than {bytes_max} bytes")
    try:
        with archive.open(entry) as member:
            while piece := member.read(PIECE_BYTES):
                size += len(piece)
                yield piece
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        OSError,
        RuntimeError,
        ValueError,  # an offset before the beginning
    ) as error:
        raise BadZipError(f"{name!r} cannot be read") from error
    if size != entry.file_size:
        raise BadZipError(f"{name!r} unpacks to {size} bytes and claims {entry.file_size}")


def _check_end(file: IO[bytes], directory_bytes_max: int) -> None:
    """Read the record that ends a zip: whoever opens a zip reads as much as it claims."""
    file.seek(0, os.SEEK_END)
    size = file.tell()
    file.seek(-min(size, END_BYTES + COMMENT_BYTES_MAX), os.SEEK_END)
    tail = file.read()
    file.seek(0)
    at = tail.rfind(END_MAGIC)
    if at < 0 or at + END_BYTES > len(tail):
        raise BadZipError("not a readable zip")
    claimed, offset, comment = struct.unpack_from("<IIH", tail, at + 12)
    if at + END_BYTES + comment != len(tail):
        raise BadZipError("something follows the zip in the file")
    if tail[:at][-ZIP64_LOCATOR_BYTES:].startswith(ZIP64_MAGIC):
        raise BadZipError("the zip is of the 64-bit kind")
    if claimed > directory_bytes_max:
        raise BadZipError("the zip has too many entries")
    if size - len(tail) + at != offset + claimed:
        raise BadZipError("something precedes the zip's entries or its directory in the file")
