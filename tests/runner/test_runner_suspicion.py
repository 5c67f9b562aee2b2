"""Which ends raise a suspicion against the machine, and what follows from one."""

from __future__ import annotations

import dataclasses

import pytest

from runner.canaries import quick_canary
from runner.executor import Case
from runner.faults import MachineFaultError
from runner.languages import TOOLCHAINS, Toolchain
from runner.limits import End, Outcome, Usage
from runner.program import run_limits
from runner.suspicion import compiler_suspicion, run_suspicion
from runner.wire import Verdict
from tests.runner.support import CPP, PYTHON, C, limits

LIMITS = run_limits(limits(time_ms=1000), 0)
FAILED = Outcome(
    end=End.EXITED,
    exit_code=1,
    stdout=b"",
    stderr=b"main.c:1:2: error: expected ';'",
    wall_ms=10,
    usage=Usage(cpu_ms=10, memory_kib=1, out_of_memory=False),
)


def failed(**changes) -> Outcome:
    return dataclasses.replace(FAILED, **changes)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (failed(), None),
        (failed(exit_code=139, stderr=b"Segmentation fault"), None),
        (failed(not_executed="gcc: No such file or directory"), "No such file"),
        (failed(exit_code=126), "126"),
        (failed(exit_code=127), "127"),
        (failed(exit_code=137), "SIGKILL"),
        (failed(exit_code=143), "SIGTERM"),
        (failed(stderr=b" \n"), "said nothing"),
        (failed(stderr=b"as: out/main: No space left on device"), "No space left"),
        (failed(stderr=b"gcc: fatal error: Killed signal terminated program cc1"), "Killed"),
        (failed(stderr=b"fork: Resource temporarily unavailable"), "Resource"),
        (failed(stderr=b"Fatal Python error: init_fs_encoding"), "Fatal Python"),
    ],
)
def test_what_makes_a_compile_error_doubtful(outcome, words):
    doubt = compiler_suspicion(outcome)
    assert (doubt is None) if words is None else (words in doubt)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (failed(), None),
        (failed(exit_code=139), None),
        (failed(exit_code=134), None),
        (failed(exit_code=0, stderr=b"No space left on device"), None),
        (failed(exit_code=137), "SIGKILL"),
        (failed(exit_code=137, end=End.CPU), None),
        (failed(exit_code=137, end=End.MEMORY), None),
        (
            failed(exit_code=137, usage=Usage(cpu_ms=1, memory_kib=1, out_of_memory=True)),
            None,
        ),
        (failed(exit_code=135), "SIGBUS"),
        (failed(exit_code=127), "127"),
        (failed(not_executed="out/main: Permission denied"), "Permission denied"),
        (failed(stderr=b"OSError: [Errno 5] Input/output error"), "Input/output"),
        (failed(end=End.WALL), "waited for ever"),
        (
            failed(end=End.WALL, usage=Usage(cpu_ms=50, memory_kib=1, out_of_memory=False)),
            None,
        ),
    ],
)
def test_what_makes_a_runs_end_doubtful(outcome, words):
    doubt = run_suspicion(outcome, LIMITS)
    assert (doubt is None) if words is None else (words in doubt)


def test_a_canary_asks_for_the_headers_that_were_missed():
    text = b"main.cpp:1:10: fatal error: iostream: No such file or directory"
    assert b"#include <iostream>" in quick_canary("main.cpp", text)[1]
    # The header of another language is not missing, it was never there.
    assert b"iostream" not in quick_canary("main.c", text)[1]
    assert b"my.h" not in quick_canary("main.c", b"fatal error: my.h: No such")[1]


@pytest.mark.parametrize("language", [C, CPP, PYTHON])
def test_a_sound_machine_passes_for_every_language(bench, language):
    bench.executor.doctor.examine_all(TOOLCHAINS[language], bench.slot, lambda: False)


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Verdict.RE),
        ("import sys; sys.exit(127)", Verdict.RE),
        ("raise OSError(28, 'No space left on device')", Verdict.RE),
    ],
)
def test_what_a_program_does_to_itself_is_its_own(bench, logged, source, verdict):
    """On a sound machine, again: so it is no fault, however much it looks like one."""
    reports = bench.judge(PYTHON, source, *[(b"", b"")] * 5)
    assert {report.status for report in reports} == {verdict}
    # And it is not looked into for ever.
    assert logged().count("run_doubted") == 3


@pytest.mark.parametrize(
    "source",
    [
        "#error gcc: fatal error: Killed signal terminated program cc1",
        '#pragma GCC error "No space left on device"',
        "#include <iostream>",
        "#include <nowhere.h>",
    ],
)
def test_words_alone_excuse_no_compile_error(bench, source):
    assert bench.one(C, source).status == Verdict.CE


def _scripted(script: str) -> Toolchain:
    return Toolchain(
        source_name="main.c",
        compile_command=("sh", "-c", script),
        run_command=("{root}/out/main",),
        makes_binary=True,
    )


def test_a_program_that_cannot_be_executed_for_its_own_sake_is_no_fault(bench):
    """It names an interpreter that is not there; a known program runs in the same place."""
    script = "echo '#!/nowhere' > {root}/out/main; chmod +x {root}/out/main"
    case = Case(limits=limits(), stdin=b"", expected=b"", text_bytes_max=1000)
    with bench.executor.open_job(_scripted(script), b"", bench.slot) as program:
        assert program.compile(lambda: False) is None
        report = program.run_case(case, lambda: False)
    assert report.status == Verdict.RE


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("kill -9 $$", "SIGKILL"),
        ("exit 1", "said nothing"),
    ],
)
def test_a_compiler_that_ends_as_no_source_makes_it_is_no_compile_error(bench, script, words):
    with (
        bench.executor.open_job(_scripted(script), b"", bench.slot) as program,
        pytest.raises(MachineFaultError, match=words) as caught,
    ):
        program.compile(lambda: False)
    assert not caught.value.unsound  # A known program compiles.


def test_a_compiler_that_crashes_on_a_source_gives_a_compile_error(bench):
    with bench.executor.open_job(_scripted("kill -SEGV $$"), b"", bench.slot) as program:
        assert program.compile(lambda: False) is not None


def test_a_compiler_that_was_killed_once_is_started_again(bench):
    script = (
        "if [ -e {root}/out/before ]; then echo int main\\(void\\)\\{{return 0\\;\\}} "
        "| gcc -x c - -o {root}/out/main; else touch {root}/out/before; kill -9 $$; fi"
    )
    with bench.executor.open_job(_scripted(script), b"", bench.slot) as program:
        assert program.compile(lambda: False) is None
