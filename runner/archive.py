"""Reading of zips that come over the network.

Guarantees: nothing is written to disk and no name from the zip is used as a path; what is
inflated is bounded by the caller, whatever sizes the zip claims.
"""

from __future__ import annotations

import io
import zipfile
import zlib

ENCRYPTED_FLAG = 0x1


class BadArchiveError(Exception):
    """The zip is not what it must be; the message says what is wrong with it."""


def open_archive(source: str | io.BytesIO, *, entries_max: int) -> zipfile.ZipFile:
    """Open a zip.

    Raises:
        BadArchiveError: it is none, or has too many entries.
        FileNotFoundError: there is no such file.
    """
    try:
        archive = zipfile.ZipFile(source)
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise BadArchiveError("not a readable zip") from error
    if len(archive.infolist()) > entries_max:
        archive.close()
        raise BadArchiveError(f"over {entries_max} entries")
    return archive


def read_entry(archive: zipfile.ZipFile, name: str, *, bytes_max: int) -> bytes:
    """Inflate one entry. Raises BadArchiveError where it is missing, damaged or too large."""
    try:
        info = archive.getinfo(name)
        if info.flag_bits & ENCRYPTED_FLAG:
            raise BadArchiveError(f"{name} is encrypted")
        with archive.open(info) as entry:
            data = entry.read(bytes_max + 1)
    except KeyError as error:
        raise BadArchiveError(f"{name} is missing") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise BadArchiveError(f"{name} is damaged") from error
    if len(data) > bytes_max:
        raise BadArchiveError(f"{name} is over {bytes_max} bytes")
    return data


def read_only_entry(blob: bytes, name: str, *, bytes_max: int) -> bytes:
    """Return the one file of a zip, which must be called `name`. Raises BadArchiveError."""
    with open_archive(io.BytesIO(blob), entries_max=1) as archive:
        return read_entry(archive, name, bytes_max=bytes_max)
