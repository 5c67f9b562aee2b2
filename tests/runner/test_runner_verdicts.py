"""Every verdict, on real compilers in real isolation."""

import dataclasses
import os

import pytest

import runner.place
from runner.executor import Case
from runner.faults import MachineFaultError
from runner.isolation import IsolationError
from runner.languages import TOOLCHAINS, Toolchain
from runner.limits import End, Limits, Outcome, Usage
from runner.program import OUTPUT_BYTES_MAX
from runner.reports import compile_error_report, text_bytes_max
from runner.streams import OutputPipe
from runner.verdict import verdict_of
from runner.wire import Verdict
from tests.runner.support import CPP, PYTHON, C, limits

SUM = (b"1 2\n", b"3\n")

C_SUM = '#include <stdio.h>\nint main(void){int a,b;scanf("%d%d",&a,&b);printf("%d\\n",a+b);}'
CPP_SUM = "#include <iostream>\nint main(){int a,b;std::cin>>a>>b;std::cout<<a+b<<std::endl;}"
PY_SUM = "a, b = map(int, input().split())\nprint(a + b)"

PROGRAMS = [
    (C, C_SUM, Verdict.AC),
    (CPP, CPP_SUM, Verdict.AC),
    (PYTHON, PY_SUM, Verdict.AC),
    (C, "int main(void){return 0;}", Verdict.WA),
    (CPP, '#include <cstdio>\nint main(){puts("4");}', Verdict.WA),
    (PYTHON, "print(4)", Verdict.WA),
    (C, "int main(void){for(volatile int i=0;;)i++;}", Verdict.TLE),
    (CPP, "int main(){for(volatile int i=0;;)i=i+1;}", Verdict.TLE),
    (PYTHON, "while True: pass", Verdict.TLE),
    (
        C,
        "#include <stdlib.h>\n#include <string.h>\n"
        "int main(void){for(;;)memset(malloc(1<<20),1,1<<20);}",
        Verdict.MLE,
    ),
    (
        CPP,
        "#include <vector>\nint main(){std::vector<int> v;for(;;)v.push_back(1);}",
        Verdict.MLE,
    ),
    (PYTHON, "x = []\nwhile True: x.append(b'a' * 100_000 + bytes([len(x) % 256]))", Verdict.MLE),
    (C, "int main(void){return 3;}", Verdict.RE),
    (CPP, "#include <vector>\nint main(){std::vector<int> v;return v.at(3);}", Verdict.RE),
    (PYTHON, "raise ValueError", Verdict.RE),
    (C, '#include <stdio.h>\nint main(void){for(;;)puts("xxxxxxxxxxxxxxxx");}', Verdict.OLE),
    (CPP, '#include <iostream>\nint main(){for(;;)std::cout<<"xxxxxxxxxxxxx";}', Verdict.OLE),
    (PYTHON, "while True: print('x' * 1000)", Verdict.OLE),
]


@pytest.mark.parametrize(
    ("language", "source", "verdict"),
    PROGRAMS,
    ids=[f"{('C', 'C++', 'Python')[lang]}-{verdict}" for lang, _, verdict in PROGRAMS],
)
def test_verdict(bench, language, source, verdict):
    assert bench.one(language, source, SUM, time_ms=400).status == verdict


@pytest.mark.parametrize(
    ("language", "source", "message"),
    [
        (C, "int main(void) { return x; }", "main.c:1:"),
        (CPP, "int main() { return x; }", "main.cpp:1:"),
        (PYTHON, "def f(:\n", 'File "main.py", line 1'),
        (PYTHON, "\x00", "null bytes"),
    ],
)
def test_a_compile_error_is_told_once(bench, language, source, message):
    first, second = bench.judge(language, source, SUM, SUM)
    assert (first.status, second.status) == (Verdict.CE, Verdict.CE)
    assert message in first.stderr
    assert second.stderr == ""


def test_a_program_that_links_to_nothing_is_a_compile_error(bench):
    report = bench.one(C, "int f(void){return 1;}")
    assert report.status == Verdict.CE
    assert "main" in report.stderr


def test_a_program_that_is_too_large_is_a_compile_error(bench):
    report = bench.one(C, "char a[80<<20]={1};\nint main(void){return a[1];}")
    assert report.status == Verdict.CE
    assert "64 MiB" in report.stderr


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, Verdict.AC),
        ({"stdout": b"4\n"}, Verdict.WA),
        ({"exit_code": 1}, Verdict.RE),
        ({"usage": Usage(cpu_ms=1001, memory_kib=1, out_of_memory=False)}, Verdict.TLE),
        ({"usage": Usage(cpu_ms=1, memory_kib=99_999, out_of_memory=False)}, Verdict.MLE),
        ({"usage": Usage(cpu_ms=1, memory_kib=1, out_of_memory=True)}, Verdict.MLE),
        ({"usage": Usage(cpu_ms=1, memory_kib=1, out_of_memory=True), "exit_code": 1}, Verdict.MLE),
        ({"exit_code": 1, "stderr": b"Traceback\nMemoryError\n"}, Verdict.MLE),
        ({"exit_code": 1, "stderr": b"MemoryError\nbut not in the end"}, Verdict.RE),
        ({"stderr": b"MemoryError"}, Verdict.AC),
        ({"end": End.OUTPUT, "exit_code": 137}, Verdict.OLE),
        ({"end": End.CPU, "exit_code": 137}, Verdict.TLE),
        ({"end": End.WALL, "exit_code": 137}, Verdict.TLE),
        ({"end": End.MEMORY, "exit_code": 137}, Verdict.MLE),
    ],
)
def test_how_an_end_becomes_a_verdict(change, verdict):
    """Also what no program can bring about for certain, such as an end just past a limit."""
    bounds = Limits(
        cpu_ms=1000,
        wall_ms=3000,
        memory_kib=65536,
        output_bytes_max=1,
        file_bytes_max=1,
        scratch_bytes_max=1,
    )
    outcome = Outcome(
        end=End.EXITED,
        exit_code=0,
        stdout=b"3\n",
        stderr=b"",
        wall_ms=1,
        usage=Usage(cpu_ms=1000, memory_kib=1, out_of_memory=False),
    )
    assert verdict_of(dataclasses.replace(outcome, **change), bounds, b"3") == verdict


def test_output_is_kept_up_to_its_bound_and_counted_beyond():
    with OutputPipe(5, None) as pipe:
        os.write(pipe.write_fd, b"0123456789")
        pipe.close_write_end()
        assert pipe.read()
        assert not pipe.read()
        assert (bytes(pipe.kept), pipe.total) == (b"01234", 10)


def test_what_a_right_run_reports(bench):
    source = """
import sys
x = b"x" * 30_000_000
t = 0
for i in range(2_000_000): t += i
print("out")
print("err", file=sys.stderr)
"""
    report = bench.one(PYTHON, source, (b"", b"out\n"), time_ms=5000)
    assert report.status == Verdict.AC
    assert (report.exit_code, report.stdout, report.stderr) == (0, "out\n", "err\n")
    assert 30_000 <= report.memory_kib <= 50_000
    assert 20 <= report.exec_time_ms <= 5000


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 128 + 11),
        ("import os; os.abort()", 128 + 6),
    ],
)
def test_exit_codes(bench, source, code):
    report = bench.one(PYTHON, source)
    assert (report.status, report.exit_code) == (Verdict.RE, code)


def test_every_case_is_judged_by_itself(bench):
    source = """
n = int(input())
if n == 1: print(1)
if n == 2: raise ValueError
if n == 3:
    while True: pass
print(n)
"""
    reports = bench.judge(
        PYTHON,
        source,
        *((f"{n}\n".encode(), f"{n}\n".encode()) for n in range(5)),
        time_ms=300,
    )
    assert [report.status.value for report in reports] == ["AC", "WA", "RE", "TLE", "AC"]


def test_a_sleeper_is_stopped_and_told_its_cpu_time(bench):
    report = bench.one(PYTHON, "import time; time.sleep(60)", time_ms=200)
    assert report.status == Verdict.TLE
    assert report.exec_time_ms <= 200


def test_time_is_counted_over_all_processes(bench):
    """Four children of a quarter of the limit each, and a bit."""
    source = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        while time.process_time() < 0.1: pass
        os._exit(0)
for _ in range(4): os.wait()
"""
    assert bench.one(PYTHON, source, time_ms=300).status == Verdict.TLE
    assert bench.one(PYTHON, source, time_ms=2000).status == Verdict.AC


def test_memory_is_counted_over_all_processes(bench):
    source = """
import os, time
r, w = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        x = b"x" * 30_000_000
        os.write(w, b".")
        time.sleep(60)
got = 0
while got < 3: got += len(os.read(r, 1))
"""
    assert bench.one(PYTHON, source, memory_mib=64).status == Verdict.MLE
    assert bench.one(PYTHON, source, memory_mib=200).status == Verdict.AC


@pytest.mark.parametrize(
    ("language", "source"),
    [
        (PYTHON, "x = 'a' * 10**14"),
        (CPP, "#include <string>\nint main(){std::string s(1LL<<46,'a');return s[5]=='b';}"),
    ],
)
def test_a_refused_allocation_is_out_of_memory(bench, language, source):
    assert bench.one(language, source).status == Verdict.MLE


def test_memory_just_below_the_limit_is_allowed(bench):
    source = """
#include <stdlib.h>
int main(void){size_t n=31<<20;volatile char*p=malloc(n);
for(size_t i=0;i<n;i+=1024)p[i]=1;return 0;}
"""
    assert bench.one(C, source, memory_mib=32).status == Verdict.AC
    assert bench.one(C, source, memory_mib=28).status == Verdict.MLE


def test_deep_recursion_may_use_the_memory_limit(bench):
    source = """
#include <stdio.h>
int deep(int n){volatile char a[1024];a[n%1024]=1;return n?deep(n-1)+a[n%1024]:0;}
int main(void){printf("%d\\n",deep(30000));return 0;}
"""
    assert bench.one(C, source, (b"", b"30000\n"), memory_mib=64).status == Verdict.AC


@pytest.mark.parametrize(
    "source",
    [
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 10)",
        "import sys; sys.stdout.buffer.write(b'\\xed\\xa0\\x80' * 10)",
        "import sys; sys.stdout.buffer.write('\\u00e4'.encode() * 100_001)",
    ],
    ids=["any bytes", "surrogates", "half a character at the cut"],
)
def test_output_that_is_not_text_is_judged_and_can_be_sent(bench, source):
    report = bench.one(PYTHON, source, (b"", b""))
    assert report.status == Verdict.WA
    assert report.stdout
    report.stdout.encode("utf-8")


def test_a_cut_does_not_halve_a_character(bench):
    report = bench.one(PYTHON, "print('x' + '\\u00e4' * 100_000)")
    assert "\ufffd" not in report.stdout
    assert len(report.stdout.encode()) <= 64 * 1024


def test_output_is_compared_before_it_is_cut(bench):
    source = "print('x' * 1_000_000 + input())"
    right, wrong = bench.judge(
        PYTHON, source, (b"a\n", b"x" * 1_000_000 + b"a"), (b"b\n", b"x" * 1_000_000 + b"a")
    )
    assert (right.status, wrong.status) == (Verdict.AC, Verdict.WA)
    assert len(right.stdout) == 64 * 1024


def test_a_note_is_not_lost_behind_a_long_log(bench):
    chatty = Toolchain(
        source_name="main.c",
        compile_command=("sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x >&2"),
        run_command=("{root}/out/main",),
        makes_binary=True,
    )
    with bench.executor.open_job(chatty, b"", bench.slot) as program:
        error = program.compile(lambda: False)
    first, second = compile_error_report(error.message, [limits(cases=2)])[0]
    assert first.stderr.startswith("compiling gave no program")
    assert (first.output_truncated, second.output_truncated) == (True, False)
    assert (len(first.stderr), second.stderr) == (64 * 1024, "")


@pytest.mark.parametrize(("length", "cut"), [(65_536, False), (65_537, True)])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_is_longer_than_is_reported_is_marked(bench, stream, length, cut):
    report = bench.one(PYTHON, f"import sys; sys.{stream}.write('x' * {length})")
    assert report.output_truncated is cut
    assert len(getattr(report, stream)) == 65_536


def test_a_report_of_many_cases_keeps_less_of_each():
    few, many = text_bytes_max([limits(cases=2)]), text_bytes_max([limits(cases=250)] * 2)
    assert few == 64 * 1024
    assert 500 * 2 * many <= 4 << 20
    assert text_bytes_max([limits(cases=0)]) == few


def test_ten_million_blank_lines_get_a_verdict(bench):
    source = "import sys; sys.stdout.write('1' + '\\n' * 10_000_000)"
    assert bench.one(PYTHON, source, (b"", b"1\n"), time_ms=5000).status == Verdict.AC


def test_a_right_answer_is_never_too_long(bench):
    size = OUTPUT_BYTES_MAX + 1000
    source = f"import sys; sys.stdout.write('x' * {size})"
    report = bench.one(PYTHON, source, (b"", b"x" * size), time_ms=5000, memory_mib=256)
    assert report.status == Verdict.AC


def test_a_flood_is_stopped_long_before_its_time(bench):
    source = "while True: print('x' * 100_000)"
    report = bench.one(PYTHON, source, time_ms=60_000)
    assert report.status == Verdict.OLE
    assert report.exec_time_ms < 30_000


def test_output_left_in_the_pipe_at_the_end_counts(bench, monkeypatch):
    def blind(running, should_stop):
        """See only the end of the program, as when it comes before the last look."""
        os.waitid(os.P_PID, running._process.pid, os.WEXITED | os.WNOWAIT)
        return End.EXITED

    monkeypatch.setattr("runner.process._Running.watch", blind)
    monkeypatch.setattr("runner.program.OUTPUT_BYTES_MAX", 5000)
    source = "print('x' * int(input()))"
    fits, over = bench.judge(PYTHON, source, (b"4999", b"x" * 4999), (b"5000", b"x"))
    assert (fits.status, over.status) == (Verdict.AC, Verdict.OLE)


def test_a_flood_of_errors_is_too_much_output_too(bench):
    source = "import sys\nwhile True: sys.stderr.write('x' * 10_000)"
    assert bench.one(PYTHON, source, time_ms=5000).status == Verdict.OLE


def test_a_large_input_arrives_whole(bench):
    source = "import sys; print(len(sys.stdin.buffer.read()))"
    size = 20_000_000
    report = bench.one(PYTHON, source, (b"x" * size, str(size).encode()), time_ms=5000)
    assert report.status == Verdict.AC


def test_standard_streams_can_be_opened_by_name(bench):
    source = "open('/dev/stdout', 'w').write(open('/dev/stdin').read())"
    assert bench.one(PYTHON, source, (b"hi", b"hi")).status == Verdict.AC


def test_the_working_folder_can_be_written(bench):
    source = "open('a.txt', 'w').write('hi')\nprint(open('a.txt').read())"
    assert bench.one(PYTHON, source, (b"", b"hi")).status == Verdict.AC


def test_a_case_that_cannot_be_run_is_the_machines(bench, monkeypatch):
    calls = []

    def failing(*args, **more):
        calls.append(args)
        raise IsolationError("no walls today")

    real = runner.place.run
    compiled = iter([real])
    monkeypatch.setattr(runner.place, "run", lambda *a, **k: next(compiled, failing)(*a, **k))
    with pytest.raises(MachineFaultError, match="no walls today"):
        bench.one(PYTHON, PY_SUM, SUM)
    assert len(calls) == 2


def test_a_failed_start_is_not_taken_for_the_programs_exit(bench, monkeypatch):
    """bubblewrap exits with 1 when it fails, as programs do."""
    case = Case(limits=limits(), stdin=b"", expected=b"", text_bytes_max=1000)
    with bench.executor.open_job(TOOLCHAINS[PYTHON], b"", bench.slot) as program:
        assert program.run_case(case, lambda: False).status == Verdict.AC
        monkeypatch.setattr("runner.isolation.INSIDE", "/proc/nowhere")
        with pytest.raises(MachineFaultError, match="proc/nowhere"):
            program.run_case(case, lambda: False)
        with pytest.raises(MachineFaultError, match="proc/nowhere"):
            program.compile(lambda: False)


def test_the_check_at_the_start_says_what_is_wrong(bench, monkeypatch):
    bench.executor.check(bench.slot)
    monkeypatch.setattr("runner.isolation.INSIDE", "/proc/nowhere")
    with pytest.raises(IsolationError, match="proc/nowhere"):
        bench.executor.check(bench.slot)


@pytest.mark.parametrize("language", [C, PYTHON])
@pytest.mark.parametrize("walls", ["bubblewrap", "none"])
def test_verdicts_without_control_groups(bench_without_groups, unsafe_bench, language, walls):
    bench = bench_without_groups if walls == "bubblewrap" else unsafe_bench
    programs = {verdict: source for lang, source, verdict in PROGRAMS if lang == language}
    got = {
        verdict: bench.one(language, source, SUM, time_ms=400).status
        for verdict, source in programs.items()
    }
    assert got == {verdict: verdict for verdict in programs}
