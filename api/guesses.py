"""How often one address may be wrong about a secret that people choose.

Guarantees: failures count, successes do not, so that a whole class behind one address gets in; an
address that has used up its failures is refused, right or wrong, for at most a minute, at that
door alone. Each process counts for itself, in memory.
"""

from __future__ import annotations

import ipaddress
import time
from typing import Literal

import structlog
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from api.errors import ProblemError

Door = Literal["register", "sign_in"]

log = structlog.get_logger("api")


class Guesses:
    """Counts failures per door and address."""

    def __init__(self, failures_per_min_max: int) -> None:
        self._limit = RateLimitItemPerMinute(failures_per_min_max)
        self._counted = FixedWindowRateLimiter(MemoryStorage())

    def require_left(self, door: Door, address: str | None) -> None:
        """Raise ProblemError (429) if the address has no failure left at this door."""
        key = _key(address)
        if self._counted.test(self._limit, door, key):
            return
        left_s = self._counted.get_window_stats(self._limit, door, key).reset_time - time.time()
        raise ProblemError(
            429,
            "too_many_failures",
            "too many wrong secrets from this address; try again in a minute",
            headers={"Retry-After": str(max(1, round(left_s)))},
        )

    def failed(self, door: Door, address: str | None) -> None:
        """Count a failure."""
        key = _key(address)
        self._counted.hit(self._limit, door, key)
        if not self._counted.test(self._limit, door, key):
            log.warning("too_many_failures", door=door, address=key)


def _key(address: str | None) -> str:
    """Return what is counted together: an IPv4 address, or what one IPv6 customer is given."""
    try:
        known = ipaddress.ip_address(address or "")
    except ValueError:
        return "unknown"
    if known.version == 4:
        return str(known)
    return str(known.ipv4_mapped or ipaddress.ip_network((known, 64), strict=False))
