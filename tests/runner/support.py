"""What the runner's tests share: small jobs, their archives, and a bench to judge them on."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.executor import Executor, judge_cases
from runner.isolation import Slot
from runner.languages import TOOLCHAINS
from runner.reports import compile_error_report
from runner.testdata import TestData
from runner.wire import CaseReport, TaskLimits

C, CPP, PYTHON = 0, 1, 2


def limits(*, memory_mib: int = 64, time_ms: int = 1000, cases: int = 1) -> TaskLimits:
    return TaskLimits(
        taskScore=100, memoryLimit=memory_mib * 1024, timeLimit=time_ms, caseCount=cases
    )


def testdata_zip(tasks: Sequence[Sequence[tuple[bytes, bytes]]]) -> bytes:
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w", zipfile.ZIP_DEFLATED) as archive:
        for task, cases in enumerate(tasks):
            for case, (stdin, expected) in enumerate(cases):
                archive.writestr(f"{task:02d}{case:02d}.in", stdin)
                archive.writestr(f"{task:02d}{case:02d}.out", expected)
    return blob.getvalue()


testdata_zip.__test__ = False


def source_zip(name: str, source: bytes) -> bytes:
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w") as archive:
        archive.writestr(name, source)
    return blob.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Judges one program, start to end, without a service."""

    executor: Executor
    slot: Slot
    folder: Path

    def judge(
        self,
        language: int,
        source: str,
        *cases: tuple[bytes, bytes],
        memory_mib: int = 64,
        time_ms: int = 1000,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[CaseReport]:
        cases = cases or ((b"", b""),)
        tasks = (limits(memory_mib=memory_mib, time_ms=time_ms, cases=len(cases)),)
        path = self.folder / "data.zip"
        path.write_bytes(testdata_zip([cases]))
        toolchain = TOOLCHAINS[language]
        with (
            TestData(path) as data,
            self.executor.open_job(toolchain, source.encode(), self.slot) as program,
        ):
            error = program.compile(should_stop)
            if error is not None:
                return compile_error_report(error.message, tasks)[0]
            return judge_cases(program, tasks, data, should_stop)[0]

    def one(
        self, language: int, source: str, *cases: tuple[bytes, bytes], **more: Any
    ) -> CaseReport:
        """Judge a program with one case."""
        (report,) = self.judge(language, source, *cases, **more)
        return report
