"""Which languages this machine has been proven to judge.

Guarantees: a language is offered only after known programs of it came out as they must; it is
withdrawn the moment a job finds the machine unfit for it, and comes back by itself; every change is
logged with its reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from runner.doctor import Doctor
from runner.faults import MachineFaultError
from runner.isolation import Slot
from runner.languages import TOOLCHAINS, Toolchain
from runner.place import ShouldStop

PROVE_EVERY_S = 3 * 3600.0
RETRY_S_MIN = 5.0
RETRY_S_MAX = 300.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(kw_only=True, slots=True)
class _Language:
    toolchain: Toolchain
    due_s: float
    retry_s: float = RETRY_S_MIN
    offered: bool = False
    reason: str = "not tried yet"


class Soundness:
    """Proves languages and withdraws them. Safe to use from any thread, but for `prove_due`,
    which one thread calls. `clock()` gives monotonic seconds."""

    def __init__(
        self,
        doctor: Doctor,
        *,
        toolchains: Mapping[int, Toolchain] = TOOLCHAINS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._doctor = doctor
        self._clock = clock
        self._guard = threading.Lock()
        self._languages = {
            number: _Language(toolchain=toolchain, due_s=clock())
            for number, toolchain in toolchains.items()
        }

    def offered(self) -> list[int]:
        """Return the languages that this machine is proven to judge."""
        with self._guard:
            return [number for number, language in self._languages.items() if language.offered]

    def why_not(self, number: int) -> str | None:
        """Say why a known language is not offered; `None` where it is, or is unknown."""
        with self._guard:
            language = self._languages.get(number)
            return None if language is None or language.offered else language.reason

    def withdraw(self, number: int, reason: str) -> None:
        """Offer a language no more until it is proven again; the others are to be proven too."""
        with self._guard:
            now_s = self._clock()
            for other in self._languages.values():
                if other.offered:
                    other.due_s = now_s
            self._failed(number, reason)

    def prove_due(self, slot: Slot, should_stop: ShouldStop) -> None:
        """Prove what is due, in a free slot. Raises JobStoppedError."""
        for number, language in self._languages.items():
            if self._clock() < language.due_s:
                continue
            try:
                self._doctor.examine_all(language.toolchain, slot, should_stop)
            except MachineFaultError as fault:
                with self._guard:
                    self._failed(number, str(fault))
            else:
                self._passed(number)

    def _passed(self, number: int) -> None:
        with self._guard:
            language = self._languages[number]
            language.due_s = self._clock() + PROVE_EVERY_S
            language.retry_s = RETRY_S_MIN
            if not language.offered:
                language.offered = True
                _log.info("language_offered", language=number)

    def _failed(self, number: int, reason: str) -> None:
        """Put a language off. The guard is held."""
        language = self._languages[number]
        language.due_s = self._clock() + language.retry_s
        language.retry_s = min(RETRY_S_MAX, 2 * language.retry_s)
        language.offered = False
        language.reason = reason
        _log.error(
            "language_withdrawn",
            language=number,
            reason=reason,
            again_in_s=round(language.due_s - self._clock(), 1),
        )
        if not any(other.offered for other in self._languages.values()):
            _log.critical("no_language_offered: this runner stays idle", reason=reason)
