"""Programs that attack. After each of them the next honest job is judged right."""

import os
import socket
import threading
from pathlib import Path

import psutil
import pytest

from runner.process import JobStoppedError
from runner.streams import sealed_input
from runner.wire import Verdict
from tests.runner.support import CPP, PYTHON, C

HONEST = "print(int(input()) + 1)"


@pytest.fixture(autouse=True)
def nothing_is_left(bench, work_root):
    """No process, no group, no file of a run is there after it, and the next one is fine."""
    yield
    report = bench.one(PYTHON, HONEST, (b"1\n", b"2\n"))
    assert report.status == Verdict.AC
    # Both the outer bubblewrap and the first process inside are started with the job's folder;
    # when the latter is gone, so is all that ran beside it.
    assert [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(str(work_root.folder) in part for part in process.info["cmdline"] or ())
    ] == []
    groups = Path("/sys/fs/cgroup").glob(f"*/**/runner-{os.getpid()}-*")
    assert list(groups) == []
    assert {path.name for path in work_root.folder.iterdir()} == {"lock"}


def says(bench, source, **more) -> str:
    """Run a Python program that must end well, and return what it printed."""
    report = bench.one(PYTHON, source, time_ms=5000, **more)
    assert report.exit_code == 0, report.stderr
    return report.stdout


@pytest.mark.parametrize(
    "path",
    ["/etc/shadow", "/etc/passwd", "/root", "/home", "/srv", "/var", "/run", "/sys", "/opt"],
)
def test_host_files_are_not_there(bench, path):
    source = f"import os; print(os.path.exists({path!r}))"
    assert says(bench, source) == "False\n"


def test_the_environment_is_empty(bench, monkeypatch):
    monkeypatch.setenv("RUNNER_REGISTRATION_TOKEN", "s3cret-token")
    source = """
import os, glob
print(sorted(os.environ))
for path in glob.glob("/proc/[0-9]*/environ"):
    print(open(path, "rb").read())
"""
    printed = says(bench, source)
    assert "s3cret" not in printed
    assert "RUNNER" not in printed
    names = printed.splitlines()[0]
    assert set(eval(names)) <= {"PATH", "LANG", "HOME", "PWD", "LC_CTYPE"}


def test_only_three_descriptors(bench):
    source = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    assert says(bench, source) == "['0', '1', '2', '3']\n"  # 3 is the listing itself


def test_the_expected_output_is_nowhere(bench):
    source = """
import os
for top in ("/judge", "/tmp", "/etc", "/dev/shm"):
    for folder, _, files in os.walk(top):
        for name in files:
            try:
                if b"rewsna-detcepxe"[::-1] in open(os.path.join(folder, name), "rb").read(9999):
                    print("found", folder, name)
            except OSError:
                pass
print(sorted(os.listdir("/judge")), sorted(os.listdir("/judge/src")))
"""
    (report,) = bench.judge(PYTHON, source, (b"", b"expected-answer\n"), time_ms=5000)
    assert report.stdout == "['out', 'src'] ['main.py']\n"


@pytest.mark.parametrize("path", ["/x", "/judge/src/x", "/judge/out/x", "/dev/x", "/usr/x"])
def test_only_tmp_can_be_written(bench, path):
    source = f"""
try:
    open({path!r}, "w").write("x")
    print("written")
except OSError as error:
    print("refused")
"""
    assert says(bench, source) == "refused\n"


def test_a_full_tmp_is_bounded_and_forgotten(bench):
    source = """
import errno, os
print(os.listdir("/tmp"))
try:
    while True:
        with open(f"/tmp/{len(os.listdir('/tmp'))}", "wb") as file: file.write(bytes(1 << 22))
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    for _ in range(2):
        assert says(bench, source, memory_mib=512) == "[]\nENOSPC\n"


def test_tmp_counts_as_memory(bench):
    source = "open('/tmp/a', 'wb').write(bytes(60 << 20))"
    assert bench.one(PYTHON, source, memory_mib=48).status == Verdict.MLE


def test_a_terabyte_of_nothing_is_refused(bench):
    source = "import os; fd = os.open('/tmp/a', os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 1 << 40)"
    assert bench.one(PYTHON, source).status == Verdict.RE


def test_the_network_is_not_there(bench):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = f"""
import socket
for address in (("127.0.0.1", {port}), ("8.8.8.8", 53)):
    try:
        socket.create_connection(address, 1)
        print("connected")
    except OSError:
        print("refused")
"""
        assert says(bench, source) == "refused\nrefused\n"


def test_abstract_sockets_of_the_host_are_not_there(bench):
    name = f"runner-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        source = rf"""
import socket
try:
    socket.socket(socket.AF_UNIX).connect("\0{name}")
    print("connected")
except OSError:
    print("refused")
"""
        assert says(bench, source) == "refused\n"


def test_a_fork_bomb(bench):
    source = "#include <unistd.h>\nint main(void){for(;;)fork();}"
    assert bench.one(C, source, time_ms=500).status in (Verdict.TLE, Verdict.MLE)


def test_processes_are_bounded(bench):
    source = """
import os, time
born = 0
try:
    while born < 1000:
        if os.fork() == 0: time.sleep(60)
        born += 1
except BlockingIOError:
    print(born)
"""
    assert int(says(bench, source, memory_mib=512)) < 70


def test_a_daemon_that_holds_stdout(bench):
    source = """
import os, time
print("done", flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(60)
    os._exit(0)
"""
    report = bench.one(PYTHON, source, (b"", b"done"))
    assert report.status == Verdict.AC


def test_a_daemon_without_walls_holds_up_nobody(unsafe_bench, slot):
    """Nothing ends it here, but nobody waits for it either."""
    if slot.uid is None:
        pytest.skip("not root: the daemon could not be told from other processes")
    source = """
import os, time
print("done", flush=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(3600)
"""
    report = unsafe_bench.one(PYTHON, source, (b"", b"done"))
    daemons = [
        process
        for process in psutil.process_iter(["uids"])
        if process.info["uids"].real == slot.uid
    ]
    for daemon in daemons:
        daemon.kill()
    psutil.wait_procs(daemons, timeout=10)
    assert report.status == Verdict.AC


def test_the_input_cannot_be_changed():
    with sealed_input(b"abc") as fd:
        assert os.read(fd, 9) == b"abc"
        for attempt in (lambda: os.write(fd, b"x"), lambda: os.ftruncate(fd, 0)):
            with pytest.raises(PermissionError):
                attempt()


def test_a_folder_as_deep_as_it_gets(bench):
    source = """
import os
try:
    while True:
        os.mkdir("d")
        os.chdir("d")
except OSError:
    print("enough")
"""
    report = bench.one(PYTHON, source, (b"", b"enough"), time_ms=500)
    assert report.status in (Verdict.MLE, Verdict.TLE, Verdict.AC)


def test_closed_pipes_do_not_end_the_watch(bench):
    source = "import os\nos.close(1); os.close(2)\nwhile True: pass"
    assert bench.one(PYTHON, source, time_ms=300).status == Verdict.TLE


def test_ignored_signals(bench):
    source = """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
"""
    assert bench.one(PYTHON, source, time_ms=300).status == Verdict.TLE


def test_killing_everything_reaches_only_oneself(bench):
    source = """
import os, signal
for pid in [-1, 1, os.getppid(), *range(2, 3000)]:
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
"""
    bench.one(PYTHON, source)  # Its verdict is its own affair; what counts is in the fixture.


def test_memory_in_a_child(bench):
    source = """
import os
if os.fork() == 0:
    x = b"x" * 200_000_000
    os._exit(0)
os.wait()
print("fine")
"""
    assert bench.one(PYTHON, source, (b"", b"fine")).status == Verdict.MLE


def test_one_huge_global(bench):
    source = """
#include <string.h>
static char a[1u<<30];
int main(void){memset(a,1,sizeof a);return 0;}
"""
    assert bench.one(C, source).status == Verdict.MLE


@pytest.mark.parametrize(
    "call",
    [
        "libc.unshare(0x10000000)",  # CLONE_NEWUSER
        "libc.unshare(0x00020000)",  # CLONE_NEWNS
        "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "libc.setuid(0)",
        "libc.chroot(b'/tmp')",
    ],
)
def test_no_way_to_more_rights(bench, call):
    source = f"import ctypes\nlibc = ctypes.CDLL(None)\nprint({call})"
    assert says(bench, source) == "-1\n"


def test_the_user_is_nobody_special(bench, slot):
    if slot.uid is None:
        pytest.skip("not root")
    source = "print(open('/proc/self/uid_map').read().split(), open('/proc/self/status').read())"
    printed = says(bench, source)
    assert "CapEff:\t0000000000000000" in printed
    assert "NoNewPrivs:\t1" in printed
    ours = threading.Event()
    seen: list[int] = []

    def look() -> bool:
        seen.extend(
            process.info["uids"].real
            for process in psutil.process_iter(["name", "uids"])
            if process.info["name"] == "honest-name"
        )
        if seen:
            ours.set()
        return ours.is_set()

    source = "import ctypes\nctypes.CDLL(None).prctl(15, b'honest-name', 0, 0, 0)\nwhile True: pass"
    with pytest.raises(JobStoppedError):
        bench.one(PYTHON, source, time_ms=10_000, should_stop=look)
    assert seen
    assert set(seen) == {slot.uid}


COMPILE_ATTACKS = {
    "reads a host file": (C, '#include "/etc/shadow"\nint main(void){return 0;}'),
    "embeds a host file": (C, '__asm__(".incbin \\"/etc/shadow\\"");\nint main(void){return 0;}'),
    "includes itself": (C, '#include "main.c"\nint main(void){return 0;}'),
    "reads for ever": (C, "#include </dev/zero>\nint main(void){return 0;}"),
    "a huge array": (C, "int a[1<<29]={1};\nint main(void){return a[5];}"),
    "a template bomb": (
        CPP,
        "template<int N,int M>struct A{static const int v=A<N-1,M>::v+A<N-1,M+1>::v;};\n"
        "template<int M>struct A<0,M>{static const int v=1;};\n"
        "int main(){return A<600,0>::v;}",
    ),
}


@pytest.mark.parametrize("attack", COMPILE_ATTACKS)
def test_attacks_on_the_compiler(bench, attack):
    language, source = COMPILE_ATTACKS[attack]
    report = bench.one(language, source)
    assert report.status == Verdict.CE
    assert report.stderr
    assert "root:" not in report.stderr


def test_a_stopped_job_stops_at_once_and_leaves_nothing(bench):
    looks = iter([False] * 5)
    with pytest.raises(JobStoppedError):
        bench.one(
            PYTHON,
            "import time; time.sleep(60)",
            time_ms=60_000,
            should_stop=lambda: next(looks, True),
        )
