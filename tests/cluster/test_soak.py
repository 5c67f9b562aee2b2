"""The soak: twenty seconds here, as long as SOAK_S says with `make soak`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.soak import Measured, Sample, Soak, soak

SOAK_S = float(os.environ.get("SOAK_S", "20"))


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 300)
def test_nothing_grows_under_moderate_load(mongo_uri: str, tmp_path: Path) -> None:
    found = soak(mongo_uri, tmp_path, SOAK_S)
    for sample in found.samples:
        print(sample)
    print(f"landed {found.landed}")
    assert found.findings == []
    assert found.growths() == []
    assert found.landed >= SOAK_S / 4


def sample(when: str, *, memory_mib: float = 100, connections: int = 9, stale: int = 0) -> Sample:
    one = Measured(memory_mib=memory_mib, connections=connections, threads=5)
    return Sample(when=when, processes={"api 0": one}, stale_blobs=stale)


def test_what_grows_is_named() -> None:
    start, middle = sample("start", memory_mib=50), sample("middle")
    for end, words in (
        (sample("end"), []),
        (sample("end", memory_mib=130), ["api 0: 100.0 to 130.0 MiB"]),
        (sample("end", connections=40), ["api 0: 9 to 40 connections"]),
        (sample("end", stale=2), ["2 blobs that nothing refers to"]),
    ):
        assert Soak(samples=[start, middle, end], findings=[], landed=1).growths() == words
