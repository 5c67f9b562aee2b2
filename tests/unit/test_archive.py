"""Zips that people send: what is taken, and every refusal with its reason."""

from __future__ import annotations

import contextlib
import io
import stat
import struct
import zipfile
from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.contract import Language
from mongo import archive
from mongo.archive import SOURCE_BYTES_MAX, check_testdata, source_zip
from mongo.errors import InvalidError

SOURCE = b"int main(void) { return 0; }\n"
MIB = 1024 * 1024


def zipped(
    *entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as made:
        for name, data in entries:
            made.writestr(name, data, method)
    return packed.getvalue()


def special(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    return entry


def claiming(data: bytes, size: int) -> bytes:
    """The zip with every record of an uncompressed size replaced by `size`."""
    lying = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = 0
        while (found := lying.find(signature, start)) >= 0:
            struct.pack_into("<I", lying, found + offset, size)
            start = found + 4
    return bytes(lying)


def encrypted(data: bytes) -> bytes:
    """The zip with the encryption flag of its entries set."""
    marked = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        marked[marked.find(signature) + offset] |= 1
    return bytes(marked)


def shifted(data: bytes) -> bytes:
    """The zip with a directory that claims to lie 256 bytes further on: the entry lies at -256."""
    moved = bytearray(data)
    at = moved.rfind(b"PK\x05\x06") + 16
    struct.pack_into("<I", moved, at, struct.unpack_from("<I", moved, at)[0] + 256)
    return bytes(moved)


def truncated(data: bytes) -> bytes:
    """The zip with rubbish where the first entry's data was."""
    rubbish = bytearray(data)
    start = 30 + len("main.c")
    rubbish[start : start + 20] = b"\xff" * 20
    return bytes(rubbish)


def unpacked(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as made:
        return {name: made.read(name) for name in made.namelist()}


# -- code ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "name"),
    [(Language.C, "main.c"), (Language.CPP, "main.cpp"), (Language.PYTHON, "main.py")],
)
def test_a_bare_file_and_a_zip_of_it_become_the_same_zip(language: Language, name: str) -> None:
    bare = source_zip(SOURCE, language)
    assert unpacked(bare) == {name: SOURCE}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert source_zip(zipped((name, SOURCE), method=method), language) == bare


@pytest.mark.parametrize(
    "source", [b"\x00\xff\xfe", b"PK", b"PK\x03", b" ", b"x" * SOURCE_BYTES_MAX]
)
def test_any_bytes_are_a_source_file(source: bytes) -> None:
    assert unpacked(source_zip(source, Language.C)) == {"main.c": source}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"x" * (SOURCE_BYTES_MAX + 1), "larger than"),
        (zipped(("main.c", b"")), "empty"),
        (zipped(), "holds nothing"),
        (zipped(("main.py", SOURCE)), "holds 'main.py'"),
        (zipped(("Main.c", SOURCE)), "must hold exactly main.c"),
        (zipped(("a/main.c", SOURCE)), "must hold exactly main.c"),
        (zipped(("../main.c", SOURCE)), "must hold exactly main.c"),
        (zipped(("/main.c", SOURCE)), "must hold exactly main.c"),
        (zipped(("main.c", SOURCE), ("main.h", b"")), "must hold exactly main.c"),
        (zipped(("main.c", SOURCE), ("__MACOSX/._main.c", b"x")), "__MACOSX"),
        (zipped(("main.c/", b"")), "must hold exactly main.c"),
        (zipped((special("main.c", stat.S_IFLNK | 0o777), b"/etc/shadow")), "regular file"),
        (zipped((special("main.c", stat.S_IFDIR | 0o755), b"")), "regular file"),
        (zipped((special("main.c", stat.S_IFIFO | 0o644), SOURCE)), "regular file"),
        (encrypted(zipped(("main.c", SOURCE))), "encrypted"),
        (zipped(("main.c", SOURCE), method=zipfile.ZIP_BZIP2), "neither stored nor deflated"),
        (zipped(("main.c", SOURCE), method=zipfile.ZIP_LZMA), "neither stored nor deflated"),
        (truncated(zipped(("main.c", SOURCE * 9))), "cannot be read"),
        (shifted(zipped(("main.c", SOURCE))), "something precedes"),
        (zipped(("main.c", SOURCE))[:-10], "not a readable zip"),
        (b"PK\x03\x04" + b"\0" * 60, "not a readable zip"),
        (zipped(("main.c", b"a" * (SOURCE_BYTES_MAX + 1))), "unpacks to more than"),
    ],
)
def test_code_that_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidError, match=why) as caught:
        source_zip(data, Language.C)
    assert caught.value.reason == "invalid_request"
    assert caught.value.detail.startswith("code: ")


def test_a_duplicate_name_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = zipped(("main.c", SOURCE), ("main.c", b"other"))
    with pytest.raises(InvalidError, match="must hold exactly"):
        source_zip(data, Language.C)


@pytest.mark.parametrize("claimed", [0, 10, 2**32 - 2])
def test_a_bomb_that_lies_about_its_size_is_cut_off_early(
    monkeypatch: pytest.MonkeyPatch, claimed: int
) -> None:
    read = 0
    original = zipfile.ZipExtFile.read

    def counting(self: zipfile.ZipExtFile, n: int | None = -1) -> bytes:
        nonlocal read
        piece = original(self, n)
        read += len(piece)
        return piece

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counting)
    bomb = claiming(zipped(("main.c", b"\0" * (64 * MIB))), claimed)
    assert len(bomb) < MIB
    with pytest.raises(InvalidError):
        source_zip(bomb, Language.C)
    assert read <= SOURCE_BYTES_MAX


@given(st.binary(max_size=300))
def test_whatever_follows_a_zip_s_magic_is_taken_or_refused(data: bytes) -> None:
    for magic in (*archive.ZIP_MAGIC, b""):
        with contextlib.suppress(InvalidError):
            source_zip(magic + data, Language.PYTHON)


@given(st.integers(0, 200), st.binary(min_size=1, max_size=8))
def test_a_zip_changed_anywhere_is_taken_or_refused(position: int, change: bytes) -> None:
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA):
        data = bytearray(zipped(("main.c", SOURCE * 3), method=method))
        data[position : position + len(change)] = change
        with contextlib.suppress(InvalidError):
            source_zip(bytes(data), Language.C)


# -- test data -----------------------------------------------------------------------------


def cases(*counts: int, without: Iterable[str] = ()) -> list[tuple[str | zipfile.ZipInfo, bytes]]:
    names = [
        f"{task:02d}{case:02d}.{kind}"
        for task, count in enumerate(counts)
        for case, kind in product(range(count), ("in", "out"))
    ]
    return [(name, b"1\n") for name in names if name not in without]


def testdata_error(data: bytes, *counts: int) -> str:
    with pytest.raises(InvalidError) as caught:
        check_testdata(io.BytesIO(data), counts)
    assert caught.value.reason == "invalid_testdata"
    return caught.value.detail


testdata_error.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("counts", [(1,), (2, 3), (100,), (1,) * 100])
def test_complete_test_data_is_taken(counts: tuple[int, ...]) -> None:
    check_testdata(io.BytesIO(zipped(*cases(*counts))), counts)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (zipped(*cases(1, 2, without=["0001.in", "0100.out"])), "missing file '0100.out'"),
        (zipped(*cases(1, 2, without=["0000.in", "0100.out"])), "missing file '0000.in'"),
        (zipped(), "missing file '0000.in'"),
        (zipped(*cases(1, 3)), "surplus file '0102.in'"),
        (zipped(*cases(1, 2), ("README", b"")), "surplus file 'README'"),
        (zipped(*cases(1, 2), ("__MACOSX/._0000.in", b"")), "surplus file '__MACOSX/._0000.in'"),
        (zipped(*[(f"data/{name}", data) for name, data in cases(1, 2)]), "surplus file 'data/"),
        (zipped(*cases(1, 2, without=["0000.in"]), ("0000.in/", b"")), "surplus file '0000.in/'"),
        (zipped(*cases(1, 2), ("../0000.in", b"")), "surplus file '../0000.in'"),
        (zipped(*cases(1, 2), ("٠٠٠٠.in", b"")), "surplus file"),  # noqa: RUF001
        (
            zipped(
                *cases(1, 2, without=["0000.in"]),
                (special("0000.in", stat.S_IFLNK | 0o777), b"0000.out"),
            ),
            "'0000.in' is not a regular file",
        ),
        (encrypted(zipped(*cases(1, 2))), "is encrypted"),
        (zipped(*cases(1, 2), method=zipfile.ZIP_LZMA), "neither stored nor deflated"),
        (b"not a zip", "not a readable zip"),
        (b"", "not a readable zip"),
    ],
)
def test_test_data_that_is_refused(data: bytes, why: str) -> None:
    assert why in testdata_error(data, 1, 2)


def test_a_file_that_is_there_twice_is_named() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = zipped(*cases(1), ("0000.in", b"2\n"))
    assert "'0000.in' is there twice" in testdata_error(data, 1)


def test_bounds_on_the_whole_hold_whatever_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = zipped(("0000.in", b"\0" * MIB), ("0000.out", b"\0" * MIB))
    monkeypatch.setattr(archive, "TESTDATA_FILE_BYTES_MAX", 2 * MIB)
    monkeypatch.setattr(archive, "TESTDATA_BYTES_MAX", MIB + 1)
    for lying in (data, claiming(data, 1)):
        assert testdata_error(lying, 1)
    monkeypatch.setattr(archive, "TESTDATA_BYTES_MAX", 4 * MIB)
    monkeypatch.setattr(archive, "TESTDATA_FILE_BYTES_MAX", MIB - 1)
    assert "'0000.in' unpacks to more than" in testdata_error(data, 1)
    monkeypatch.setattr(archive, "TESTDATA_DIRECTORY_BYTES_MAX", 100)
    assert "too many entries" in testdata_error(data, 1)
