"""`python -m benchmarks [--quick] [--only ROW ...] [--skip ROW ...] [--json FILE]`."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import logs
from benchmarks import (
    cycle,
    flat_claims,
    flat_landing,
    idle,
    latency,
    memory,
    queued,
    read_concerns,
    storm,
    units,
)
from benchmarks.bench import Bench, open_bench
from benchmarks.report import Line, as_json, circumstances, show
from benchmarks.sizes import FULL, QUICK

ROWS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "units": units.run,
    "cycle": cycle.run,
    "queued": queued.run,
    "latency": latency.run,
    "claims": flat_claims.run,
    "reads": read_concerns.run,
    "landings": flat_landing.landings,
    "rejudges": flat_landing.rejudges,
    "idle": idle.run,
    "storm": storm.run,
    "memory": memory.run,
}


def main() -> int:
    """Measure and print the table; the exit code is 1 if a row failed."""
    options = _options()
    # So that the temporary folder goes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    logs.configure("ERROR")
    began = datetime.now(UTC)
    lines: list[Line] = []
    try:
        failed = _measure(options, lines)
    finally:
        # What there is, also where the run was ended before its time.
        about = circumstances("quick" if options.quick else "full", began)
        show(lines, about)
        if options.json:
            Path(options.json).write_text(as_json(lines, about))
    if failed:
        sys.stderr.write(f"bench: FAILED rows: {', '.join(failed)}\n")
    return 1 if failed else 0


def _measure(options: argparse.Namespace, lines: list[Line]) -> list[str]:
    """Add the rows' lines to `lines` as they come; return which rows failed."""
    failed: list[str] = []
    wanted = [row for row in ROWS if row in (options.only or ROWS) and row not in options.skip]
    with (
        tempfile.TemporaryDirectory(prefix="judge-bench-") as folder,
        open_bench(QUICK if options.quick else FULL, Path(folder)) as bench,
    ):
        for row in wanted:
            bench.say(f"=== {row}")
            try:
                for line in ROWS[row](bench):
                    lines.append(line)
                    bench.say(f"{line.case}, {line.who}: measured")
            except Exception:
                logging.exception("the row %s failed", row)
                failed.append(row)
    return failed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a few minutes")
    parser.add_argument("--only", nargs="+", choices=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--skip", nargs="+", choices=ROWS, metavar="ROW", default=[])
    parser.add_argument("--json", metavar="FILE", help="write everything there as JSON, too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
