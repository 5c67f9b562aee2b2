"""The service's settings, read from the environment once and validated as a whole.

Guarantees: a `Settings` that exists is usable. Whatever is wrong with the environment is
reported as one line that names the variable, before anything has been started.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

IN_PROCESS_URI = "mongomock://memory"
"""The `MONGODB_URI` of the in-process store, for machines on which no `mongod` runs."""

FREE_THREADS_MIN = 8
"""Threads of an API process that no waiting poll may take: for heartbeats and the rest."""


RetryPause = Annotated[float, Field(ge=0, le=3600)]


class SettingsError(Exception):
    """A setting is missing or wrong; the message is one line for the operator."""


class Settings(BaseSettings):
    """Everything the service reads from its environment. Field names are the variables' names."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", env_ignore_empty=True, case_sensitive=False
    )

    mongodb_uri: str | None = None
    """A `mongodb://` URI naming the database. Unset: the embedded server under `data_dir`."""
    data_dir: Path = Path(".data")
    runner_registration_token: str | None = None
    """What a runner must present to register. Unset: registration is closed."""
    admin_api_key: str | None = None
    secret_key: str | None = Field(default=None, min_length=16)
    """Signs the runners' links. Required when `mongodb_uri` is set."""
    public_url: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    lease_ttl_s: float = Field(default=30, gt=0, le=3600)
    heartbeat_interval_s: float = Field(default=15, gt=0, le=1800)
    poll_interval_s: float = Field(default=3, gt=0, le=60)
    max_attempts: int = Field(default=3, ge=1, le=100)
    max_concurrent_jobs: int = Field(default=8, ge=1, le=1000)
    retry_pauses_s: Annotated[tuple[RetryPause, ...], NoDecode] = (5, 30, 120)
    """How long a job that a runner failed at is handed to nobody: after its first attempt, its
    second, and so on; the last also after what follows. Separated by commas."""
    give_up_s: float = Field(default=300, ge=0, le=86_400)
    """A job whose attempts are used up ends as a judge error once two runners had it, or this long
    after its first failure."""
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """Where `/metrics` is served instead of on `port`. Unset: on `port`."""
    trusted_proxies: int = Field(default=0, ge=0, le=10)
    """How many proxies in front of the service write `X-Forwarded-For` and `-Proto`."""
    failures_per_min_max: int = Field(default=30, ge=1, le=1_000_000)
    """Wrong secrets that one address may send in a minute, at registration and at sign-in each."""
    runner_checks: Literal["on", "off"] = "on"
    """Whether runners have to judge known programs right. Off: for load generators, and for tests
    whose runners make their verdicts up."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    job_retention_days: int | None = Field(default=None, ge=1, le=36_500)
    """Days after which the job of a judged submission is removed; the submission stays. Unset:
    jobs are kept."""
    inline_bytes_max: int | None = Field(default=None, ge=-1, le=256 * 1024)
    """Programs and outputs up to this size (packed, in bytes) lie in their submission, others are
    blobs. Unset: 16384. -1: all are blobs, which versions before this setting can read."""
    waiters_max: int = Field(default=208, ge=0, le=10_000)
    """Requests one API process may hold open with `?wait=` at once; others are answered at once."""
    web_concurrency: int = Field(default=2, ge=1, le=256)
    """API processes on this host."""
    web_threads: int = Field(default=256, ge=1, le=20_000)
    """Threads of each API process; at least `FREE_THREADS_MIN` more than `waiters_max`."""

    @field_validator("retry_pauses_s", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) else value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("secret_key", mode="before")
    @classmethod
    def _stripped(cls, value: Any) -> Any:
        # Blanks alone would make a key that anybody can guess.
        return value.strip() if isinstance(value, str) else value

    @field_validator("public_url")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return value.rstrip("/") if value else None

    @field_validator("admin_api_key")
    @classmethod
    def _prefixed(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"ak_[\x21-\x7e]{16,197}", value):
            raise ValueError("must start with ak_ and have 16 to 197 ASCII characters after it")
        return value

    @field_validator("mongodb_uri")
    @classmethod
    def _mongo(cls, value: str | None) -> str | None:
        if value is None or value == IN_PROCESS_URI or value.startswith("mongodb+srv://"):
            return value
        if not value.startswith("mongodb://"):
            raise ValueError("must start with mongodb:// or mongodb+srv://")
        try:
            parse_uri(value, warn=False)
        except (PyMongoError, ValueError):
            # The driver's own words may repeat the password.
            raise ValueError("is not a well-formed MongoDB URI") from None
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.lease_ttl_s < 2 * self.heartbeat_interval_s:
            raise ValueError(
                f"LEASE_TTL_S ({self.lease_ttl_s:g}) must be at least twice "
                f"HEARTBEAT_INTERVAL_S ({self.heartbeat_interval_s:g}): "
                "one lost heartbeat must not cost a lease"
            )
        if self.web_threads < self.waiters_max + FREE_THREADS_MIN:
            raise ValueError(
                f"WEB_THREADS ({self.web_threads}) must exceed WAITERS_MAX ({self.waiters_max}) "
                f"by at least {FREE_THREADS_MIN}: waiting polls must not starve the heartbeats"
            )
        if self.metrics_port == self.port:
            raise ValueError(f"METRICS_PORT ({self.metrics_port}) must not be PORT")
        if self.mongodb_uri is not None and self.secret_key is None:
            raise ValueError(
                "SECRET_KEY is required when MONGODB_URI is set "
                "(at least 16 characters, the same for every API process)"
            )
        return self


def load_settings(**overrides: Any) -> Settings:
    """Read the settings from the environment; `overrides` win (field name to value).

    Raises:
        SettingsError: with one line naming the first variable that is wrong. The value is not
            repeated: it may be a secret.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(str(part).upper() for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{name}: {message}" if name else message) from None
