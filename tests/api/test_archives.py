"""Zips that attack, at everybody who opens one: the code's zip when it is handed in and at the
runner, the test data's when it is uploaded and at the runner.

What is refused is refused with a reason, before much of it is read into memory or unpacked.
"""

from __future__ import annotations

import functools
import io
import stat
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.archive import BadZipError, read_only_entry
from runner.testdata import TestData, TestDataError
from tests.factories import Service
from tests.runner.support import limits

MIB = 1024 * 1024
PEAK_BYTES_MAX = 16 * MIB
UNPACKED_BYTES_MAX = MIB
TAKEN = ""
REFUSED_AT_SUBMIT = ((400, "invalid_request"), (413, "body_too_large"))

# `first` is the name that the consumer looks for, `rest` what else must be there.
Made = Callable[[str, tuple[str, ...]], bytes]


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in entries:
            made.writestr(name, data, method)
    return packed.getvalue()


def plain(first: str, rest: tuple[str, ...], data: bytes = b"1\n") -> bytes:
    return zipped((first, data), *((name, b"1\n") for name in rest))


def beside(name: str) -> Made:
    """What is needed, and one more entry."""
    return lambda first, rest: zipped(*((each, b"1\n") for each in (first, *rest, name)))


def instead(change: Callable[[str], str]) -> Made:
    """The first entry under another name."""
    return lambda first, rest: plain(change(first), rest)


def with_mode(mode: int, data: bytes = b"/etc/shadow") -> Made:
    def made(first: str, rest: tuple[str, ...]) -> bytes:
        entry = zipfile.ZipInfo(first)
        entry.external_attr = mode << 16
        return zipped((entry, data), *((name, b"1\n") for name in rest))

    return made


def patched(blob: bytes, *changes: tuple[bytes, int, str, int]) -> bytes:
    """Set a field in every record that starts with a signature."""
    raw = bytearray(blob)
    for signature, offset, form, value in changes:
        at = raw.find(signature)
        while at >= 0:
            struct.pack_into(form, raw, at + offset, value)
            at = raw.find(signature, at + 4)
    return bytes(raw)


def claiming(size: int, data: bytes) -> Made:
    return lambda first, rest: patched(
        plain(first, rest, data), (b"PK\x03\x04", 22, "<I", size), (b"PK\x01\x02", 24, "<I", size)
    )


def encrypted(first: str, rest: tuple[str, ...]) -> bytes:
    return patched(plain(first, rest), (b"PK\x03\x04", 6, "<H", 1), (b"PK\x01\x02", 8, "<H", 1))


@functools.cache
def bomb(first: str, rest: tuple[str, ...]) -> bytes:
    return plain(first, rest, bytes(129 * MIB))


def crowd(entries: int) -> Made:
    """A directory of many entries, all of them the same file's; the count in its end is 1."""

    @functools.cache
    def made(first: str, rest: tuple[str, ...]) -> bytes:
        blob = plain(first, rest)
        start, end = blob.find(b"PK\x01\x02"), blob.rfind(b"PK\x05\x06")
        record = blob[start : blob.find(b"PK\x01\x02", start + 4) if rest else end]
        tail = bytearray(blob[end:])
        struct.pack_into("<I", tail, 12, len(record) * entries)
        return blob[:start] + record * entries + bytes(tail)

    return made


def of_64_bits(first: str, rest: tuple[str, ...]) -> bytes:
    """The end says one thing, the record for large zips before it another: readers differ."""
    blob = plain(first, rest)
    at = blob.rfind(b"PK\x05\x06")
    count, size, offset = struct.unpack_from("<HII", blob, at + 10)
    record = struct.pack(
        "<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset
    )
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1)
    return blob[:at] + record + locator + blob[at:]


def by_method(method: int) -> Made:
    return lambda first, rest: zipped(*((name, b"1\n") for name in (first, *rest)), method=method)


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One zip, and why each consumer refuses it."""

    made: Made
    submit: str
    upload: str
    runner_code: str
    runner_data: str


def everywhere(made: Made, why: str) -> Archive:
    return Archive(made=made, submit=why, upload=why, runner_code=why, runner_data=why)


def no_place(made: Made, upload: str, runner_data: str) -> Archive:
    """Refused for an entry that has no place there."""
    exactly = "must hold exactly main.py"
    return Archive(
        made=made, submit=exactly, upload=upload, runner_code=exactly, runner_data=runner_data
    )


ARCHIVES = {
    "a bomb": everywhere(bomb, "unpacks to more than"),
    "a bomb that claims ten bytes": everywhere(claiming(10, bytes(8 * MIB)), "cannot be read"),
    "a bomb that claims nothing": everywhere(claiming(0, bytes(8 * MIB)), "cannot be read"),
    "claims more than it holds": everywhere(claiming(99, b"1\n"), "unpacks to 2 bytes and claims"),
    "claims four gigabytes": everywhere(claiming(2**32 - 2, b"1\n"), "unpacks to more than"),
    # To test data a zip is bytes like any other; nobody opens it.
    "a bomb in a zip": Archive(
        made=lambda first, rest: plain(first, rest, zipped(("x", bytes(8 * MIB)))),
        submit="is a zip itself", upload=TAKEN, runner_code=TAKEN, runner_data=TAKEN,
    ),
    "upwards": no_place(beside("../../etc/cron.d/x"), "'../../etc/cron.d/x'", "not a plain name"),
    "upwards, the needed one": no_place(
        instead(lambda name: f"../{name}"), "surplus file '../", "not a plain name"
    ),
    "absolute": no_place(instead(lambda name: f"/tmp/{name}"), "file '/tmp/", "not a plain name"),
    "backslashes": no_place(beside("..\\x"), "surplus file", "not a plain name"),
    "in a folder": no_place(instead(lambda name: f"a/{name}"), "file 'a/", "not a plain name"),
    "a folder": no_place(beside("folder/"), "surplus file 'folder/'", "'folder/' is not a regular"),
    "a folder in its place": no_place(
        instead(lambda name: f"{name}/"), "surplus file", "is not a regular file"
    ),
    "__MACOSX": no_place(beside("__MACOSX/._x"), "'__MACOSX/._x'", "'__MACOSX/._x' is not a plain"),
    "a wrong extension": no_place(
        instead(lambda name: name[:4] + ".txt"), "surplus file", "0000.in is missing"
    ),
    "upper case": no_place(instead(str.upper), "surplus file '0000.IN'", "0000.in is missing"),
    "twice the same name": no_place(
        lambda first, rest: zipped(*((name, b"1\n") for name in (first, *rest, first))),
        "'0000.in' is there twice", "'0000.in' is there twice",
    ),
    "100,000 entries": Archive(
        made=crowd(100_000), submit="exceeds the capacity limit", upload="too many entries",
        runner_code="too many entries", runner_data="too many entries",
    ),
    "2,000 entries": Archive(
        made=crowd(2_000), submit="too many entries", upload="is there twice",
        runner_code="too many entries", runner_data="is there twice",
    ),
    "a link": everywhere(with_mode(stat.S_IFLNK | 0o777), "is not a regular file"),
    "a device": everywhere(with_mode(stat.S_IFCHR | 0o666), "is not a regular file"),
    "encrypted": everywhere(encrypted, "is encrypted"),
    "bzip2": everywhere(by_method(zipfile.ZIP_BZIP2), "neither stored nor deflated"),
    "lzma": everywhere(by_method(zipfile.ZIP_LZMA), "neither stored nor deflated"),
    "no entry": no_place(lambda first, rest: zipped(), "missing file '0000.in'", "is missing"),
    "something behind": everywhere(
        lambda first, rest: plain(first, rest) + b"junk", "something follows the zip"
    ),
    "a zip behind the zip": everywhere(
        lambda first, rest: plain(first, rest) * 2, "something precedes"
    ),
    # To a judge, code that does not start like a zip is a source file, whatever follows.
    "something in front": Archive(
        made=lambda first, rest: b"#!/bin/sh\n" + plain(first, rest),
        submit=TAKEN, upload="something precedes",
        runner_code="something precedes", runner_data="something precedes",
    ),
    "cut short": everywhere(lambda first, rest: plain(first, rest)[:-30], "not a readable zip"),
    "only an end": Archive(
        made=lambda first, rest: b"PK\x05\x06", submit="not a readable zip",
        upload="not a readable zip", runner_code="not a readable zip",
        runner_data="not a readable zip",
    ),
    "damaged": everywhere(
        lambda first, rest: patched(
            plain(first, rest, b"12345678" * 9), (b"PK\x01\x02", 16, "<I", 1)
        ),
        "cannot be read",
    ),
    "of the 64-bit kind": everywhere(of_64_bits, "64-bit kind"),
    "another format": Archive(
        made=lambda first, rest: b"Rar!\x1a\x07\x01\x00" + bytes(100), submit=TAKEN,
        upload="not a readable zip", runner_code="not a readable zip",
        runner_data="not a readable zip",
    ),
    "nothing": Archive(
        made=lambda first, rest: b"", submit="is empty", upload="not a readable zip",
        runner_code="not a readable zip", runner_data="not a readable zip",
    ),
    "as it should be": everywhere(plain, TAKEN),
    "stored": everywhere(by_method(zipfile.ZIP_STORED), TAKEN),
}  # fmt: skip


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each reading of an entry gave."""
    sizes: list[int] = []
    real = zipfile.ZipExtFile.read

    def counting(self: zipfile.ZipExtFile, n: int | None = -1) -> bytes:
        piece = real(self, n)
        sizes.append(len(piece))
        return piece

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counting)
    return sizes


@pytest.fixture
def bounded(unpacked: list[int]) -> Iterator[None]:
    """Neither memory nor work grows with what a zip claims or holds."""
    yield
    try:
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES_MAX
        assert sum(unpacked) <= UNPACKED_BYTES_MAX
    finally:
        tracemalloc.stop()


def made(case: Archive, *names: str) -> bytes:
    """Make the zip; from then on memory and work count."""
    first, *rest = names
    tracemalloc.stop()
    blob = case.made(first, tuple(rest))
    tracemalloc.start()
    return blob


@pytest.mark.parametrize("name", ARCHIVES)
def test_code_at_submit(service: Service, bounded: None, name: str) -> None:
    service.problem(1)
    key = service.user("ada")
    blob = made(ARCHIVES[name], "main.py")
    answer = service.submit_over_http(key, problem_id=1, language=2, code=blob)
    if ARCHIVES[name].submit == TAKEN:
        assert answer.status_code == 201
    else:
        problem = answer.get_json(force=True)
        assert (answer.status_code, problem["reason"]) in REFUSED_AT_SUBMIT
        assert ARCHIVES[name].submit in problem["detail"]
        assert service.database["submissions"].count_documents({}) == 0


@pytest.mark.parametrize("name", ARCHIVES)
def test_test_data_at_upload(service: Service, bounded: None, name: str) -> None:
    before = service.problem(1)
    blob = made(ARCHIVES[name], "0000.in", "0000.out")
    answer = service.call(
        "PUT", "/problems/1/testdata", data=blob, headers={"Content-Type": "application/zip"}
    )
    if ARCHIVES[name].upload == TAKEN:
        assert answer.status_code == 200
    else:
        problem = answer.get_json(force=True)
        assert (answer.status_code, problem["reason"]) == (400, "invalid_testdata")
        assert ARCHIVES[name].upload in problem["detail"]
        assert service.ok("GET", "/problems/1")["testdata_sha256"] == before


@pytest.mark.parametrize("name", ARCHIVES)
def test_code_at_the_runner(bounded: None, name: str) -> None:
    blob = made(ARCHIVES[name], "main.py")
    if ARCHIVES[name].runner_code == TAKEN:
        assert read_only_entry(blob, "main.py", bytes_max=MIB)
    else:
        with pytest.raises(BadZipError, match=ARCHIVES[name].runner_code):
            read_only_entry(blob, "main.py", bytes_max=MIB)


@pytest.mark.parametrize("name", ARCHIVES)
def test_test_data_at_the_runner(bounded: None, tmp_path: Path, name: str) -> None:
    path = tmp_path / "data.zip"
    path.write_bytes(made(ARCHIVES[name], "0000.in", "0000.out"))

    def read() -> bytes:
        with TestData(path) as data:
            data.require([limits(cases=1)])
            return data.input(0, 0) + data.expected(0, 0)

    if ARCHIVES[name].runner_data == TAKEN:
        assert read()
    else:
        with pytest.raises(TestDataError) as caught:
            read()
        assert ARCHIVES[name].runner_data in str(caught.value)
