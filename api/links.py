"""Signed links for runners: one job, one object, one hour.

Guarantees: made when a job is handed out and never stored; the time in them is the database
server's as each host knows it, and a link made a little in the future of the host that reads it is
accepted: hosts whose clocks disagree accept each other's links.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from itsdangerous import BadData, TimestampSigner, URLSafeTimedSerializer

from api.errors import ProblemError
from dispatch.clock import Clock

LINK_TTL = timedelta(hours=1)

Kind = Literal["code", "testdata"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """What a link is for: the lease that it belongs to, and the object."""

    kind: Kind
    runner_id: str
    job_id: str
    object: str
    """The submission's id for code, the SHA-256 for test data."""


class Links:
    """Signs and reads links. `now` is the injected clock."""

    def __init__(self, secret_key: str, now: Clock) -> None:
        class ClockSigner(TimestampSigner):
            def get_timestamp(self) -> int:
                return int(now().timestamp())

        self._now = now
        self._serializer = URLSafeTimedSerializer(
            secret_key, salt="runner-links", signer=ClockSigner
        )

    def sign(self, link: Link) -> str:
        """Return the token that stands for `link` in an address."""
        token = self._serializer.dumps([link.kind, link.runner_id, link.job_id, link.object])
        return token if isinstance(token, str) else token.decode("ascii")

    def read(self, token: str, kind: Kind) -> Link:
        """Return what the token stands for.

        Raises:
            ProblemError: 403 `link_expired` or `link_invalid`.
        """
        try:
            # Not `max_age`: that refuses what another host signed a millisecond "from now".
            signed: tuple[Any, datetime] = self._serializer.loads(token, return_timestamp=True)
        except BadData:
            raise _invalid() from None
        fields, signed_at = signed
        if self._now() - signed_at > LINK_TTL:
            raise ProblemError(403, "link_expired", "this link has expired")
        if not (isinstance(fields, list) and len(fields) == 4 and fields[0] == kind):
            raise _invalid()
        return Link(kind=kind, runner_id=fields[1], job_id=fields[2], object=fields[3])


def _invalid() -> ProblemError:
    return ProblemError(403, "link_invalid", "this link is not valid")
