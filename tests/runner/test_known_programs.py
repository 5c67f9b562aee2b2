"""The known programs of the service's own problem get their known verdicts on the real runner."""

from __future__ import annotations

import io
import zipfile

import pytest

from dispatch.contract import KnownProgram, Language, Verdict
from mongo import known_programs
from runner.executor import judge_cases
from runner.languages import TOOLCHAINS
from runner.reports import compile_error_report
from runner.testdata import TestData
from runner.wire import CaseReport, TaskLimits
from tests.runner.support import Bench

PROGRAMS = {program.program_id: program for program in known_programs.known_programs()}


def judged(bench: Bench, program: KnownProgram) -> CaseReport:
    language = Language(program.language)
    (spec,) = program.handed_out.tasks
    tasks = (
        TaskLimits(
            taskScore=spec.task_score,
            memoryLimit=spec.memory_limit_kib,
            timeLimit=spec.time_limit_ms,
            caseCount=spec.case_count,
        ),
    )
    files = known_programs.KnownFiles()
    data = files.read_testdata(program.handed_out.testdata_sha256)
    packed = files.read_code(program.program_id)
    assert data is not None
    assert packed is not None
    path = bench.folder / "data.zip"
    path.write_bytes(data)
    with zipfile.ZipFile(io.BytesIO(packed)) as code:
        (name,) = code.namelist()
        source = code.read(name)
    with (
        TestData(path) as opened,
        bench.executor.open_job(TOOLCHAINS[language], source, bench.slot) as opened_program,
    ):
        error = opened_program.compile(lambda: False)
        if error is not None:
            return compile_error_report(error.message, tasks)[0][0]
        ((report,),) = judge_cases(opened_program, tasks, opened, lambda: False)
        return report


@pytest.mark.parametrize("program_id", PROGRAMS)
def test_a_known_program_gets_its_known_verdict(bench: Bench, program_id: str) -> None:
    program = PROGRAMS[program_id]
    report = judged(bench, program)
    print(program_id, report.status, report.exec_time_ms, "ms", report.memory_kib, "KiB")
    assert report.status == program.expected.name, report
    if program.expected is Verdict.CE:
        assert report.stderr.strip()


@pytest.mark.parametrize("program_id", [p for p in PROGRAMS if p.startswith("mle")])
def test_without_control_groups_too_much_memory_is_told(
    bench_without_groups: Bench, program_id: str
) -> None:
    program = PROGRAMS[program_id]
    assert program.fits(Verdict[judged(bench_without_groups, program).status])
