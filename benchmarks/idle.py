"""Row 5: what an empty queue costs: nobody there, runners that wait, runners that poll.

The API processes' housekeeping and the driver's own monitoring are in all three; what the runners
add is the difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Thread
from typing import Any

from benchmarks import client
from benchmarks.bench import Bench
from benchmarks.client import Connection, RunnerKey
from benchmarks.load import sleep_until
from benchmarks.report import Line
from benchmarks.servers import Service, cpu_s, service
from benchmarks.stats import summarise
from benchmarks.world import furnish

ROW = "5 idle"
WAIT_S = 30
POLL_EVERY_S = 3.0
SETTLE_S = 3.0
OPERATIONS = ("insert", "query", "update", "delete", "getmore", "command")
ONE_PROCESS_THREADS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleShare:
    """One runner. `wait_s` 0: it polls."""

    port: int
    runner: RunnerKey
    wait_s: int
    seconds: float
    offset_s: float


def play(share: IdleShare, start_at: float) -> list[float]:
    """Ask for jobs that never come; return how long each answer took, in s."""
    answers: list[float] = []
    until = start_at + share.seconds
    with Connection(share.port) as connection:
        sleep_until(start_at + share.offset_s)
        while (asked := time.monotonic()) < until:
            wait_s = min(share.wait_s, max(1, int(until - asked)))
            client.next_job(connection, share.runner, wait_s if share.wait_s else 0)
            answers.append(time.monotonic() - asked)
            sleep_until(asked + POLL_EVERY_S)
    return answers


def run(bench: Bench) -> Iterator[Line]:
    """Measure as many API processes as production has by default, and one with room for all."""
    runners = bench.sizes.idle_runners
    for case, settings in (
        ("2 API processes as they come", {}),
        (
            f"1 API process, {runners} may wait",
            {
                "WEB_CONCURRENCY": "1",
                "WAITERS_MAX": str(runners),
                "WEB_THREADS": str(runners + ONE_PROCESS_THREADS),
            },
        ),
    ):
        database = f"bench_idle_{settings.get('WEB_CONCURRENCY', '2')}"
        with service(bench.mongod.uri_for(database), bench.folder, **settings) as api:
            world = furnish(api, runners)
            for who, wait_s, count in (
                ("nobody", 0, 0),
                (f"{runners} runners wait ({WAIT_S} s)", WAIT_S, runners),
                (f"{runners} runners poll (every {POLL_EVERY_S:g} s)", 0, runners),
            ):
                bench.say(f"{case}, {who}")
                yield _measure(bench, api, case, who, world.runners[:count], wait_s)


def _measure(
    bench: Bench,
    api: Service,
    case: str,
    who: str,
    runners: tuple[RunnerKey, ...],
    wait_s: int,
) -> Line:
    seconds = bench.sizes.idle_s
    seen: list[_Counted] = []
    watch = Thread(target=_watch, args=(bench, api, seconds, seen))
    watch.start()
    shares = [
        IdleShare(
            port=api.port,
            runner=runner,
            wait_s=wait_s,
            # Beyond the measuring on both sides.
            seconds=seconds + 2 * SETTLE_S,
            offset_s=number / len(runners) * min(SETTLE_S, POLL_EVERY_S),
        )
        for number, runner in enumerate(runners)
    ]
    answers = bench.crowd.run(play, shares).results if shares else []
    watch.join()
    before, after = seen
    lasted_s = after.at_s - before.at_s
    per_s = (after.operations - before.operations) / lasted_s
    took = summarise([1000 * each for each in answers]) if answers and not wait_s else None
    early = sum(each < 1 for each in answers) if wait_s else 0
    return Line(
        row=ROW,
        case=case,
        who=who,
        median=None if took is None else took.median,
        p99=None if took is None else took.p99,
        count=len(answers),
        rate_per_s=per_s,
        note=(
            "per s: database operations; cores: "
            f"API {(after.api_s - before.api_s) / lasted_s:.3f}, "
            f"database {(after.database_s - before.database_s) / lasted_s:.3f}"
            + (f"; {early} polls turned away" if wait_s else "")
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counted:
    at_s: float
    operations: int
    api_s: float
    database_s: float


def _watch(bench: Bench, api: Service, seconds: float, seen: list[_Counted]) -> None:
    time.sleep(SETTLE_S)
    seen.append(_count(bench, api))
    time.sleep(seconds)
    seen.append(_count(bench, api))


def _count(bench: Bench, api: Service) -> _Counted:
    status: dict[str, Any] = bench.mongo.admin.command("serverStatus")
    return _Counted(
        at_s=time.monotonic(),
        operations=sum(status["opcounters"][name] for name in OPERATIONS),
        api_s=api.cpu_s(),
        database_s=cpu_s(bench.mongo_process),
    )
