"""Which runs say too little about a program's time, and which of several counts.

Guarantees: pure. A verdict TLE stands only after a run that left no room for the machine's share
in it, or after `RUNS_MAX` runs; another verdict stands at once.
"""

from __future__ import annotations

from runner.limits import End, Limits, Outcome

RUNS_MAX = 3
# A run that waited for this share of its time, and not just for moments, had not the core for
# itself: caches and clock were others' too.
CONTENDED_PERCENT = 10
CONTENDED_MS_MIN = 50


def contended(outcome: Outcome) -> bool:
    """Tell whether others had a good part of the run's core."""
    return (
        outcome.waited_ms >= CONTENDED_MS_MIN
        and outcome.waited_ms * 100 >= outcome.wall_ms * CONTENDED_PERCENT
    )


def took_too_long(outcome: Outcome, limits: Limits) -> bool:
    """Tell whether a run is over its time, with or without an end of its own."""
    if outcome.end in (End.CPU, End.WALL):
        return True
    return outcome.end is End.EXITED and outcome.usage.cpu_ms > limits.cpu_ms


def deserves_another_run(outcome: Outcome, limits: Limits) -> bool:
    """Tell whether a run is over its time in a way that the machine may have caused."""
    if outcome.end is End.BUSY:
        return True
    if not took_too_long(outcome, limits):
        return False
    # One that was ended at `cpu_stop_ms` is over by more than a machine's share.
    return contended(outcome) or outcome.end is End.EXITED


def better(one: Outcome | None, other: Outcome, limits: Limits) -> Outcome:
    """Return the run that speaks for the program: one in time, else the quicker one."""
    if one is None:
        return other
    if took_too_long(one, limits) != took_too_long(other, limits):
        return other if took_too_long(one, limits) else one
    return min(one, other, key=lambda outcome: outcome.usage.cpu_ms)
