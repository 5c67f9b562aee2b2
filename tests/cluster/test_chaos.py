"""A short chaos: every kind of fault once, under load, from a seed that is printed.

`make chaos` runs ten minutes of it. JUDGE_CHAOS_SEED repeats a run's faults.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.cluster.chaos import NEVER_LEFT_OUT, Chaos
from tests.cluster.replica_set import ReplicaSet

LOAD_S = 55.0


@pytest.mark.timeout(420)
@pytest.mark.slow
def test_chaos_loses_nothing_and_counts_nothing_twice(
    replica_set: ReplicaSet, cluster_uri: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("JUDGE_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"JUDGE_CHAOS_SEED={seed}")
    report = Chaos(replica_set, cluster_uri, tmp_path, seed).run(LOAD_S)
    print(report)
    assert report.findings == [], f"JUDGE_CHAOS_SEED={seed}"
    assert report.submits >= 50, "too little happened for this to be a test"
    assert report.verdicts >= report.submits
    assert not NEVER_LEFT_OUT - report.faults.keys(), report
