"""When to ask again, in one place.

Guarantees: every repetition is bounded; a wait is never shorter than the protocol's schedule,
and never longer than its longest step, whatever a `Retry-After` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import tenacity

Sleep = Callable[[float], object]
Result = TypeVar("Result")

REPORT_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 16.0)
DOWNLOAD_DELAYS_S = (1.0, 2.0)
RETRY_AFTER_S_MAX = 16.0


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, or `None` where it gives no usable number.

    The form with a date is not read: it would need clocks that agree.
    """
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds <= RETRY_AFTER_S_MAX else None


def delay_s(scheduled_s: float, retry_after_s: float | None) -> float:
    """Return how long to wait: the schedule, or longer where the service asks for it."""
    return max(scheduled_s, retry_after_s or 0.0)


def repeat(
    call: Callable[[], Result],
    *,
    unfinished: Callable[[Result], bool],
    retry_after_s: Callable[[Result], float | None],
    delays_s: tuple[float, ...],
    sleep: Sleep,
) -> Result:
    """Call until the result is not `unfinished`, or the delays are used up.

    Returns the last result, finished or not. Exceptions of `call` pass through.
    """

    def last(state: tenacity.RetryCallState) -> Result:
        if state.outcome is None:
            raise RuntimeError("asked for the result of a call that was not made")
        return cast(Result, state.outcome.result())

    def wait(state: tenacity.RetryCallState) -> float:
        # Asked for after the last attempt too, where the answer goes unused.
        step = min(state.attempt_number, len(delays_s)) - 1
        return delay_s(delays_s[step], retry_after_s(last(state)))

    def pause(seconds: float) -> None:
        sleep(seconds)

    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(len(delays_s) + 1),
        retry=tenacity.retry_if_result(unfinished),
        wait=wait,
        sleep=pause,
        retry_error_callback=last,
    )
    return retrying(call)
