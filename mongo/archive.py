"""Zips that people send: read with bounds, refused with the reason.

Guarantees: time and memory are bounded by the limits here, whatever a zip's directory claims;
nothing is ever extracted to a path that the zip chooses.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from typing import IO

from dispatch.contract import Language
from mongo.errors import InvalidError
from zipcheck import BadZipError, open_zip, unpack

SOURCE_BYTES_MAX = 1024 * 1024
TESTDATA_BYTES_MAX = 512 * 1024 * 1024
TESTDATA_FILE_BYTES_MAX = 128 * 1024 * 1024
# Enough for the entries of a hundred tasks of a hundred cases, and for what archivers add to each.
TESTDATA_DIRECTORY_BYTES_MAX = 20_000 * 200
SOURCE_DIRECTORY_BYTES_MAX = 64 * 1024
EPOCH = (1980, 1, 1, 0, 0, 0)
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")

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
    try:
        with open_zip(io.BytesIO(data), directory_bytes_max=SOURCE_DIRECTORY_BYTES_MAX) as archive:
            names = archive.namelist()
            if names != [name]:
                shown = ", ".join(repr(entry) for entry in names[:3]) or "nothing"
                raise BadZipError(f"the zip must hold exactly {name}, it holds {shown}")
            (entry,) = archive.infolist()
            source = b"".join(unpack(archive, entry, bytes_max=SOURCE_BYTES_MAX))
    except BadZipError as error:
        raise InvalidError("invalid_request", f"code: {error}") from None
    if source.startswith(ZIP_MAGIC):
        raise InvalidError("invalid_request", f"code: {name} is a zip itself")
    return source


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
    try:
        with open_zip(file, directory_bytes_max=TESTDATA_DIRECTORY_BYTES_MAX) as archive:
            _check_entries(archive, expected)
    except BadZipError as error:
        raise InvalidError("invalid_testdata", f"testdata: {error}") from None


def _check_entries(archive: zipfile.ZipFile, expected: set[str]) -> None:
    seen: set[str] = set()
    left = TESTDATA_BYTES_MAX
    for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
        name = entry.filename
        if not CASE_NAME.fullmatch(name) or name not in expected:
            raise BadZipError(f"surplus file {name!r}")
        if name in seen:
            raise BadZipError(f"{name!r} is there twice")
        seen.add(name)
        for piece in unpack(archive, entry, bytes_max=min(left, TESTDATA_FILE_BYTES_MAX)):
            left -= len(piece)
    missing = min(expected - seen, default=None)
    if missing is not None:
        raise BadZipError(f"missing file {missing!r}")
