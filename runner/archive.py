"""Reading of zips that come over the network.

Guarantees: nothing is written to disk and no name from the zip is used as a path; what is read
and inflated is bounded by the caller, whatever sizes the zip claims.
"""

from __future__ import annotations

import io
import zipfile
from typing import IO

from zipcheck import BadZipError, check_entry, open_zip, unpack

__all__ = ["BadZipError", "check_entries", "open_archive", "read_entry", "read_only_entry"]

# A name of some length and what archivers add to it.
ENTRY_BYTES = 200


def open_archive(file: IO[bytes], *, entries_max: int) -> zipfile.ZipFile:
    """Open a zip on disk of about `entries_max` entries at most. Closing `file` is the caller's.

    Raises BadZipError: it is none, has more entries, or is not all that the file holds.
    """
    return open_zip(file, directory_bytes_max=entries_max * ENTRY_BYTES)


def check_entries(archive: zipfile.ZipFile) -> None:
    """Raise BadZipError, naming the entry, if one is no ordinary file, in a folder, or twice."""
    seen: set[str] = set()
    for entry in archive.infolist():
        check_entry(entry)
        if "/" in entry.filename or "\\" in entry.filename:
            raise BadZipError(f"{entry.filename!r} is not a plain name")
        if entry.filename in seen:
            raise BadZipError(f"{entry.filename!r} is there twice")
        seen.add(entry.filename)


def read_entry(archive: zipfile.ZipFile, name: str, *, bytes_max: int) -> bytes:
    """Inflate one entry. Raises BadZipError where it is missing, damaged or too large."""
    try:
        entry = archive.getinfo(name)
    except KeyError as error:
        raise BadZipError(f"{name} is missing") from error
    return b"".join(unpack(archive, entry, bytes_max=bytes_max))


def read_only_entry(blob: bytes, name: str, *, bytes_max: int) -> bytes:
    """Return the one file of a zip, which must be called `name`. Raises BadZipError."""
    with open_zip(io.BytesIO(blob), directory_bytes_max=ENTRY_BYTES) as archive:
        if archive.namelist() != [name]:
            raise BadZipError(f"the zip must hold exactly {name}")
        return read_entry(archive, name, bytes_max=bytes_max)
