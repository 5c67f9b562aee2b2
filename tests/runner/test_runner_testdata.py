"""Test data: fetched, cached, read. Archives that attack are in `tests/api/test_archives.py`."""

from __future__ import annotations

import importlib
import os
import threading
import time

import pytest

from runner.testdata import TestData, TestDataCache, TestDataError
from tests.runner.support import limits, sha256, testdata_zip

DATA = testdata_zip([[(b"1", b"2"), (b"3", b"4")], [(b"5", b"6")]])


class Source:
    """Where the cache fetches from; counts how often."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data = data
        self.count = 0

    def __call__(self, sink, bytes_max: int) -> None:
        self.count += 1
        sink.write(self.data)


@pytest.fixture
def cache(tmp_path) -> TestDataCache:
    return TestDataCache(tmp_path / "cache")


def test_cases_are_read_by_task_and_case(cache):
    with cache.open(sha256(DATA), Source()) as data:
        data.require([limits(cases=2), limits(cases=1)])
        assert (data.input(0, 1), data.expected(0, 1)) == (b"3", b"4")
        assert (data.input(1, 0), data.expected(1, 0)) == (b"5", b"6")


def test_the_first_missing_file_is_named(cache):
    with (
        cache.open(sha256(DATA), Source()) as data,
        pytest.raises(TestDataError, match=r"0101\.in"),
    ):
        data.require([limits(cases=2), limits(cases=2)])


def test_it_is_fetched_once(cache):
    source = Source()
    for _ in range(3):
        cache.open(sha256(DATA), source).__exit__(None, None, None)
    assert source.count == 1


def test_it_is_fetched_once_by_many_at_a_time(cache):
    source = Source()
    barrier = threading.Barrier(4)

    def open_it() -> None:
        barrier.wait()
        with cache.open(sha256(DATA), source):
            pass

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.count == 1


def test_other_content_than_the_hash_says_is_refused_and_not_kept(cache, tmp_path):
    with pytest.raises(TestDataError, match="hash"):
        cache.open(sha256(DATA), Source(DATA + b"x"))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_that_rotted_on_disk_is_fetched_again(cache, tmp_path):
    source = Source()
    cache.open(sha256(DATA), source).__exit__(None, None, None)
    (tmp_path / "cache" / f"{sha256(DATA)}.zip").write_bytes(b"rotten")
    with cache.open(sha256(DATA), source) as data:
        assert data.input(0, 0) == b"1"
    assert source.count == 2


def test_a_failed_fetch_leaves_nothing(cache, tmp_path):
    def failing(sink, bytes_max: int) -> None:
        sink.write(b"half")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        cache.open(sha256(DATA), failing)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_longest_unused_goes_first_and_who_has_it_open_keeps_it(tmp_path):
    sets = [testdata_zip([[(os.urandom(1000), b"")]]) for _ in range(3)]
    cache = TestDataCache(tmp_path, bytes_max=2 * len(sets[0]) + 100)
    with cache.open(sha256(sets[0]), Source(sets[0])) as first:
        os.utime(tmp_path / f"{sha256(sets[0])}.zip", (1, 1))
        for blob in sets[1:]:
            cache.open(sha256(blob), Source(blob)).__exit__(None, None, None)
        assert {path.stem for path in tmp_path.iterdir()} == {sha256(blob) for blob in sets[1:]}
        assert len(first.input(0, 0)) == 1000


def test_what_a_killed_runner_left_is_removed_and_what_is_under_way_stays(tmp_path):
    old, new = tmp_path / "partial-old", tmp_path / "partial-new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 3601,) * 2)
    TestDataCache(tmp_path)
    assert list(tmp_path.iterdir()) == [new]


def test_downloads_under_way_take_room_too(tmp_path):
    sets = [testdata_zip([[(os.urandom(1000), b"")]]) for _ in range(2)]
    cache = TestDataCache(tmp_path, bytes_max=2 * len(sets[0]) + 100)
    (tmp_path / "partial-of-another-runner").write_bytes(bytes(len(sets[0])))
    for blob in sets:
        cache.open(sha256(blob), Source(blob)).__exit__(None, None, None)
    assert {path.stem for path in tmp_path.glob("*.zip")} == {sha256(sets[1])}


@pytest.mark.parametrize(
    "step", ["runner.testdata._sha256_of", "os.utime", "runner.testdata.TestData"]
)
def test_what_another_runner_evicts_meanwhile_is_fetched_again(cache, tmp_path, monkeypatch, step):
    source = Source()
    cache.open(sha256(DATA), source).__exit__(None, None, None)
    module, _, name = step.rpartition(".")
    real = getattr(importlib.import_module(module), name)
    evictions = []

    def evicted(path, *args):
        if not evictions:
            evictions.append(path)
            os.unlink(path)
        return real(path, *args)

    monkeypatch.setattr(step, evicted)
    with cache.open(sha256(DATA), source) as data:
        assert data.input(0, 0) == b"1"
    assert source.count == 2


def test_a_cache_that_keeps_nothing_is_given_up_on(cache, monkeypatch):
    def gone(path):
        raise FileNotFoundError

    monkeypatch.setattr("os.utime", gone)
    source = Source()
    with pytest.raises(TestDataError, match="as fast as"):
        cache.open(sha256(DATA), source)


def test_not_a_zip(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(b"not a zip")
    with pytest.raises(TestDataError):
        TestData(path)


def test_damaged_data_is_test_data_that_cannot_be_had(tmp_path):
    blob = bytearray(testdata_zip([[(b"x" * 1000, b"y")]]))
    blob[40:45] = b"*****"
    path = tmp_path / "x.zip"
    path.write_bytes(blob)
    with TestData(path) as data, pytest.raises(TestDataError, match="cannot be read"):
        data.input(0, 0)
