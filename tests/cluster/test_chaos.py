"""A short chaos under load, from a seed that is printed: the faults that matter most, and others.

`make chaos` runs ten minutes of it. JUDGE_CHAOS_SEED repeats a run's faults.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.cluster.chaos import Chaos
from tests.cluster.chaos_faults import NEVER_LEFT_OUT
from tests.cluster.replica_set import ReplicaSet

LOAD_S = 55.0
ACTS = {"rejudge", "cancel", "bulk", "edit"}


@pytest.mark.timeout(420)
@pytest.mark.slow
def test_chaos_loses_nothing_and_counts_nothing_twice(
    replica_set: ReplicaSet, cluster_uri: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("JUDGE_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    repeat = f"JUDGE_CHAOS_SEED={seed} python -m pytest -s tests/cluster/test_chaos.py"
    print(f"{repeat}; diaries, logs and the documents in question: {tmp_path}")
    report = Chaos(replica_set, cluster_uri, tmp_path, seed, repeat=repeat).run(LOAD_S)
    print(report)
    assert report.findings == [], f"{report}\nkept in {tmp_path}"
    assert report.submits >= 50, "too little happened for this to be a test"
    assert report.verdicts >= report.submits
    assert not NEVER_LEFT_OUT - report.faults.keys(), report
    assert not ACTS - report.acts.keys(), report
    assert report.retired > 0, report
