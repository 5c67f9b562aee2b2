"""The named outcomes of a runner's calls.

Guarantees: values only; tokens are kept out of every `repr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pydantic import BaseModel, Field


class RunnerConfig(BaseModel):
    """What the service asks of a runner, given at registration."""

    heartbeat_interval_s: float = Field(alias="heartbeat_interval_sec", gt=0)
    poll_interval_s: float = Field(alias="poll_interval_sec", gt=0)
    max_concurrent_jobs: int = Field(gt=0)


class RegisterBody(BaseModel):
    """The answer to a registration."""

    runner_id: str
    token: str = Field(repr=False)
    config: RunnerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Registered:
    """The service knows this runner. `token` is its credential: keep it out of logs."""

    runner_id: str
    token: str = field(repr=False)
    config: RunnerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistrationRefused:
    """The service does not take this runner; asking again will not change it."""

    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unavailable:
    """No usable answer: nothing is known of what the service did with the request."""

    detail: str
    retry_after_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Unauthorized:
    """The service does not know this runner, or no longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """A heartbeat arrived. `lost_job_ids` are listed jobs that this runner no longer holds.

    `drain`: the service asks the runner to drain.
    """

    lost_job_ids: frozenset[str]
    drain: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NoJob:
    """There is nothing to do."""


class Delivery(Enum):
    """How the handing over of a result, or of a job given back, ended."""

    ACCEPTED = "accepted"
    LEASE_LOST = "lease_lost"
    UNKNOWN_JOB = "unknown_job"
    INVALID = "invalid"
    GAVE_UP = "gave_up"
