"""Row 7: the private memory of one API process after some cycles, and after very many."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.cycle import CycleShare, cycles
from benchmarks.report import Line
from benchmarks.servers import service
from benchmarks.stats import ratio
from benchmarks.world import furnish

ROW = "7 memory"
RUNNERS = 8
STEP = 1_000


def run(bench: Bench) -> Iterator[Line]:
    """Count cycles through one API process; read its memory on the way."""
    marks = bench.sizes.memory_cycles
    settings = {"WEB_CONCURRENCY": "1", "LOG_LEVEL": "WARNING"}
    with service(bench.mongod.uri_for("bench_memory"), bench.folder, **settings) as api:
        world = furnish(api, RUNNERS)
        at_start_mib = api.memory_mib()
        done = 0
        first_mib: float | None = None
        for mark in marks:
            while done < mark:
                step = min(STEP, mark - done)
                bench.say(f"{done:,} cycles, {api.memory_mib():.1f} MiB")
                shares = [
                    CycleShare(
                        port=world.port,
                        runner=runner,
                        keys=world.keys,
                        cycles=step // RUNNERS + (number < step % RUNNERS),
                    )
                    for number, runner in enumerate(world.runners)
                ]
                done += len(bench.crowd.run(cycles, shares).results)
            now_mib = api.memory_mib()
            yield Line(
                row=ROW,
                case="one API process",
                who=f"after {done:,} cycles",
                unit="MiB",
                median=now_mib,
                ratio=None if first_mib is None else ratio(now_mib, first_mib),
                against="" if first_mib is None else f"to after {marks[0]:,}",
                note=f"{at_start_mib:.1f} MiB at its start",
            )
            first_mib = first_mib or now_mib
