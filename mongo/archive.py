"""Zips that people send: read with bounds, refused with the reason.

Guarantees: time and memory are bounded by the limits here, whatever a zip's directory claims;
nothing is ever extracted to a path that the zip chooses.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
import zlib
from collections.abc import Sequence
from typing import IO

from dispatch.contract import Language
from mongo.errors import InvalidError

SOURCE_BYTES_MAX = 1024 * 1024
TESTDATA_BYTES_MAX = 512 * 1024 * 1024
TESTDATA_FILE_BYTES_MAX = 128 * 1024 * 1024
ENTRIES_MAX = 20_000
PIECE_BYTES = 64 * 1024
EPOCH = (1980, 1, 1, 0, 0, 0)
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The others unpack without a bound on a piece's size, or fail in ways of their own."""

SOURCE_NAMES = {Language.C: "main.c", Language.CPP: "main.cpp", Language.PYTHON: "main.py"}
CASE_NAME = re.compile(r"(?P<task>\d\d)(?P<case>\d\d)\.(?P<kind>in|out)", re.ASCII)


def source_zip(data: bytes, language: Language) -> bytes:
    """Return a zip that holds exactly the one source file, from a bare file or from such a zip.

    The same source gives the same bytes.

    Raises:
        InvalidError: empty, too large, or a zip that is not one source file of that language.
    """
    name = SOURCE_NAMES[language]
    source = _zipped_source(data, name) if data.startswith(ZIP_MAGIC) else data
    if not source:
        raise InvalidError("invalid_request", "code: is empty")
    if len(source) > SOURCE_BYTES_MAX:
        raise InvalidError("invalid_request", f"code: larger than {SOURCE_BYTES_MAX} bytes")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name, EPOCH), source, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _zipped_source(data: bytes, name: str) -> bytes:
    with _opened(io.BytesIO(data), "code") as archive:
        names = archive.namelist()
        if names != [name]:
            shown = ", ".join(repr(entry) for entry in names[:3]) or "nothing"
            raise InvalidError(
                "invalid_request", f"code: the zip must hold exactly {name}, it holds {shown}"
            )
        entry = archive.infolist()[0]
        _check_entry(entry, "code")
        pieces: list[bytes] = []
        _drain(archive, entry, SOURCE_BYTES_MAX, "code", pieces)
        return b"".join(pieces)


def check_testdata(file: IO[bytes], case_counts: Sequence[int]) -> None:
    """Read a test-data zip through once and check it against the tasks' case counts.

    Raises:
        InvalidError: it cannot be read, holds anything but the tasks' files, or lacks one; the
            message names the first surplus or missing file.
    """
    expected = {
        f"{task:02d}{case:02d}.{kind}"
        for task, count in enumerate(case_counts)
        for case in range(count)
        for kind in ("in", "out")
    }
    with _opened(file, "testdata") as archive:
        entries = archive.infolist()
        if len(entries) > ENTRIES_MAX:
            raise InvalidError("invalid_testdata", f"testdata: more than {ENTRIES_MAX} entries")
        seen: set[str] = set()
        left = TESTDATA_BYTES_MAX
        for entry in sorted(entries, key=lambda entry: entry.filename):
            name = entry.filename
            if not CASE_NAME.fullmatch(name) or name not in expected:
                raise InvalidError("invalid_testdata", f"testdata: surplus file {name!r}")
            if name in seen:
                raise InvalidError("invalid_testdata", f"testdata: {name!r} is there twice")
            seen.add(name)
            _check_entry(entry, "testdata")
            left -= _drain(archive, entry, min(left, TESTDATA_FILE_BYTES_MAX), "testdata", None)
        missing = min(expected - seen, default=None)
        if missing is not None:
            raise InvalidError("invalid_testdata", f"testdata: missing file {missing!r}")


def _opened(file: IO[bytes], what: str) -> zipfile.ZipFile:
    reason = "invalid_testdata" if what == "testdata" else "invalid_request"
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError):
        raise InvalidError(reason, f"{what}: not a readable zip") from None


def _check_entry(entry: zipfile.ZipInfo, what: str) -> None:
    reason = "invalid_testdata" if what == "testdata" else "invalid_request"
    name = entry.filename
    if entry.flag_bits & 0x1:
        raise InvalidError(reason, f"{what}: {name!r} is encrypted")
    if entry.compress_type not in METHODS:
        raise InvalidError(reason, f"{what}: {name!r} is neither stored nor deflated")
    mode = entry.external_attr >> 16
    if entry.is_dir() or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
        raise InvalidError(reason, f"{what}: {name!r} is not a regular file")


def _drain(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    bytes_max: int,
    what: str,
    into: list[bytes] | None,
) -> int:
    """Read an entry to its end, counting what really comes out; return its size in bytes."""
    reason = "invalid_testdata" if what == "testdata" else "invalid_request"
    size = 0
    try:
        with archive.open(entry) as member:
            while piece := member.read(PIECE_BYTES):
                size += len(piece)
                if size > bytes_max:
                    raise InvalidError(
                        reason, f"{what}: {entry.filename!r} unpacks to more than {bytes_max} bytes"
                    )
                if into is not None:
                    into.append(piece)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        OSError,
        RuntimeError,
        ValueError,  # an offset before the beginning
    ):
        raise InvalidError(reason, f"{what}: {entry.filename!r} cannot be read") from None
    return size
