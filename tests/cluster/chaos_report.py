"""What a chaos run was made of and what it found, and what is kept of one that found something."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bson import json_util

from tests.cluster.chaos_faults import Fault
from tests.cluster.checker import DOUBLE_EFFECTS, LOSSES
from tests.cluster.snapshot import BULK, COLLECTIONS, Document, Finding, Snapshot

FINDINGS_FILE = "findings.txt"
DOCUMENTS_FILE = "documents.json"


@dataclass
class Report:
    """What a run was made of, and what it found. `acts`: what admins asked and was granted.

    `repeat`: the command for the same faults and load again.
    """

    seed: int
    seconds: float
    repeat: str
    faults: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    submits: int = 0
    verdicts: int = 0
    retired: int = 0
    failover_gaps_s: list[float] = field(default_factory=list)
    reclaim_delays_s: list[float] = field(default_factory=list)
    peace_s: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}, {self.seconds:.0f} s of load, peace after {self.peace_s:.1f} s",
            f"faults: {_counted(self.faults)}",
            f"submits acknowledged {self.submits}, verdicts {self.verdicts}, "
            f"jobs retired {self.retired}",
            f"admins: {_counted(self.acts)}",
            f"failover gap {_spread(self.failover_gaps_s)}",
            f"reclaim after a runner's death {_spread(self.reclaim_delays_s)}",
            f"losses {self._count(LOSSES)}, double effects {self._count(DOUBLE_EFFECTS)}, "
            f"findings {len(self.findings)}",
            *(f"  {finding}" for finding in self.findings[:40]),
            f"repeat it: {self.repeat}",
        ]
        return "\n".join(lines)

    def _count(self, names: frozenset[str]) -> int:
        return sum(finding.name in names for finding in self.findings)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"


def _spread(values_s: list[float]) -> str:
    if not values_s:
        return "none"
    return f"median {statistics.median(values_s):.1f} s, worst {max(values_s):.1f} s"


def keep_evidence(folder: Path, report: Report, snapshot: Snapshot, diary: list[Document]) -> None:
    """Write down what was found, and every document and note about whom it was found."""
    (folder / FINDINGS_FILE).write_text(
        "\n".join([str(report), *(f"  {finding}" for finding in report.findings), ""])
    )
    subjects = {part for one in report.findings for part in (one.subject, *one.subject.split("/"))}
    found: dict[str, list[Document]] = {
        name: [one for one in getattr(snapshot, name) if _is_about(one, subjects)]
        for name in (*COLLECTIONS, *BULK)
    }
    found["diary"] = [entry for entry in diary if _is_about(entry, subjects)]
    (folder / DOCUMENTS_FILE).write_text(json_util.dumps(found, indent=1))


def _is_about(document: Document, subjects: set[str]) -> bool:
    told = (document.get(name) for name in ("_id", "submission", "rejudge", "homework", "token"))
    return any(isinstance(one, str) and one in subjects for one in told)


def failover_gaps(faults: list[Fault], diary: list[Document]) -> list[float]:
    """How long after each fault of the primary nothing was acknowledged, at the longest."""
    acknowledged = [
        entry["at"] for entry in diary if entry.get("status") in (201, 204) and "kind" in entry
    ]
    gaps = []
    for fault in faults:
        if not fault.name.startswith("primary"):
            continue
        near = [at for at in acknowledged if fault.at - 1 <= at <= fault.at + 25]
        gaps.append(max((b - a for a, b in pairwise(near)), default=25.0))
    return gaps


def reclaim_delays(
    deaths: list[tuple[float, int]], diary: list[Document], snapshot: Snapshot
) -> list[float]:
    """From a runner's death to the next lease on the job it held. `deaths`: when, and whose."""
    delays = []
    history = {job["_id"]: job["history"] for job in snapshot.jobs}
    for died_at, number in deaths:
        name = f"runner-{number}"
        held: dict[str, Any] | None = None
        runner_id = ""
        for entry in diary:
            if entry["at"] > died_at:
                break
            if entry["kind"] == "registered" and entry["name"] == name:
                runner_id, held = entry["runner"], None
            elif entry.get("runner") == runner_id:
                held = entry if entry["kind"] == "leased" else None
        later = [
            entry["at"].timestamp() - died_at
            for entry in history.get(held["submission"] if held else "", ())
            if entry["event"] == "reclaim" and entry["at"].timestamp() > died_at
        ]
        delays += later[:1]
    return delays
