"""The reference runner on a host whose wall clock is wrong.

`python -m tests.cluster.skewed_runner <seconds fast>`; the rest is the runner's own environment.
"""

from __future__ import annotations

import datetime
import runpy
import sys
import time

FAST_S = float(sys.argv[1])
_time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime


class SkewedDatetime(_datetime):
    """`datetime` on that host."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> SkewedDatetime:
        return cls.fromtimestamp(time.time(), tz)


time.time = lambda: _time() + FAST_S
time.time_ns = lambda: _time_ns() + int(FAST_S * 10**9)
datetime.datetime = SkewedDatetime  # type: ignore[misc]

if __name__ == "__main__":
    sys.argv = ["runner"]
    runpy.run_module("runner", run_name="__main__")
