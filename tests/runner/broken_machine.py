"""`python -m tests.runner.broken_machine FAULT LANGUAGE`: one job on a machine that is broken.

To be run in a mount namespace of its own, as root. Prints as JSON what the service was told; the
runner's log goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import httpx

from runner.cgroup import find_hierarchy
from runner.client import RunnerClient
from runner.executor import Executor
from runner.health import Health
from runner.isolation import Bubblewrap, release_slots, reserve_slots
from runner.jobrun import JobControl, JobRunner
from runner.logs import configure_logging
from runner.syscalls import syscall_filters
from runner.testdata import TestDataCache
from runner.workspace import WorkRoot
from tests.runner.fake_service import FakeService
from tests.runner.machine_faults import FAULTS, Scene, run
from tests.runner.support import CPP, PYTHON, C

# None of them fits into a small disk.
RIGHT = {
    C: b"#include <stdio.h>\n#include <math.h>\n"
    b"char table[300000] = {1};\n"
    b'int main(void){double n;scanf("%lf",&n);printf("%d\\n",(int)sqrt(n)*table[0]);}',
    CPP: b"#include <iostream>\n#include <map>\n"
    b"char table[300000] = {1};\nint main(){int n;std::cin>>n;"
    b"std::map<int,int> m;m[n]=1764/n;std::cout<<m[n]*table[0];}",
    PYTHON: b"import heapq\nprint(int(input()))\n#" + b"x" * 300_000,
}
# It fits into no small disk.
CASE = (b"42\n" + os.urandom(20_000).hex().encode(), b"42\n")
EXPECTED = {C: b"6\n", CPP: b"42\n", PYTHON: b"42\n"}


def main(name: str, language: int) -> None:
    fault = FAULTS[name]
    base = Path(tempfile.mkdtemp(prefix="broken-", dir="/tmp"))
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", base)
    base.chmod(0o755)
    for folder in ("work", "cache"):
        (base / folder).mkdir()
    (slot,) = reserve_slots(1, as_root=True)
    service = FakeService()
    stdin = (
        CASE[0]
        if language != PYTHON
        else CASE[0].partition(b"\n")[0] + b"\n" + os.urandom(20_000).hex().encode()
    )
    service.add_job("jb_1", RIGHT[language], (stdin, EXPECTED[language]), language=language)
    scene = Scene(
        base=base,
        work=base / "work",
        cache=base / "cache",
        hierarchy=find_hierarchy(),
        slot_uid=slot.uid,
        service=service,
    )
    configure_logging("broken")
    unsound: list[int] = []
    try:
        fault.prepare(scene)
        client = RunnerClient(
            "http://service",
            transport=httpx.MockTransport(service.handle),
            sleep=lambda seconds: None,
        )
        client.register("t", "n")
        jobs = JobRunner(
            client=client,
            executor=Executor(
                isolation=Bubblewrap(syscall_filters()),
                work_root=WorkRoot(scene.work),
                hierarchy=scene.hierarchy,
            ),
            cache=TestDataCache(scene.cache),
            health=Health(time.monotonic),
            on_unsound=lambda number, reason: unsound.append(number),
        )
        fault.strike(scene)
        offer = client.next_job()
        jobs.run(offer, JobControl(), slot)
    finally:
        for step in scene.undo:
            step()
    told = {
        "completed": [
            [case["status"] for case in cases]
            for body in service.got("complete")
            for cases in body["tasks"]
        ],
        "aborted": [body["reason"] for body in service.got("abort")],
        "unsound": unsound,
    }
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    release_slots([slot])
    # The interpreter may have lost what it would need for an end in good order.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
