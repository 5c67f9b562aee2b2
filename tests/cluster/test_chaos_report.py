"""Of a chaos run that found something is kept what it takes to understand and to repeat it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bson import json_util

from tests.cluster.chaos_report import DOCUMENTS_FILE, FINDINGS_FILE, Report, keep_evidence
from tests.cluster.snapshot import Finding, Snapshot

REPEAT = 'make chaos ARGS="--seconds 60 --seed 7"'


def kept(folder: Path, *subjects: str) -> Any:
    findings = [Finding(name="left_over", subject=subject, detail="x") for subject in subjects]
    snapshot = Snapshot(
        submissions=[{"_id": "s1", "code_blob": b"1"}, {"_id": "s2"}],
        jobs=[{"_id": "s1", "history": [{"event": "enqueue"}]}, {"_id": "s2"}],
        rejudges=[{"_id": "rj_1"}, {"_id": "rj_2"}],
        rejudge_items=[
            {"_id": "rj_1/s1", "submission": "s1", "rejudge": "rj_1"},
            {"_id": "rj_2/s2", "submission": "s2", "rejudge": "rj_2"},
        ],
    )
    diary = [{"kind": "submit", "submission": "s1"}, {"kind": "submit", "submission": "s2"}]
    report = Report(7, 60, REPEAT, findings=findings)
    keep_evidence(folder, report, snapshot, diary)
    return json_util.loads((folder / DOCUMENTS_FILE).read_text())


def test_the_documents_and_notes_about_a_finding_are_kept_and_no_others(tmp_path: Path) -> None:
    found = kept(tmp_path, "s1")
    assert found["submissions"] == [{"_id": "s1", "code_blob": b"1"}]
    assert found["jobs"] == [{"_id": "s1", "history": [{"event": "enqueue"}]}]
    assert [item["_id"] for item in found["rejudge_items"]] == ["rj_1/s1"]
    assert found["diary"] == [{"kind": "submit", "submission": "s1"}]
    assert found["rejudges"] == []


def test_about_an_item_both_its_rejudge_and_its_submission_are_kept(tmp_path: Path) -> None:
    found = kept(tmp_path, "rj_2/s2")
    assert [one["_id"] for one in found["rejudges"]] == ["rj_2"]
    assert [one["_id"] for one in found["submissions"]] == ["s2"]


def test_all_findings_are_listed_with_the_command_that_repeats_the_run(tmp_path: Path) -> None:
    kept(tmp_path, *(f"s{number}" for number in range(50)))
    told = (tmp_path / FINDINGS_FILE).read_text()
    assert f"repeat it: {REPEAT}" in told
    assert "left_over s49: x" in told
