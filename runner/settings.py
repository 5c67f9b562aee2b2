"""The runner's settings, read once from the environment at start-up.

Guarantees: a wrong setting stops the start with one line that names the variable and never
repeats a secret.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from pydantic import Field, HttpUrl, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class SettingsError(Exception):
    """The environment does not make a runner; the message says why, in one line."""


def _default_cache_dir() -> Path:
    """Return the user's cache folder, or one in the temporary folder where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        base = tempfile.gettempdir()
    return Path(base) / "judge-runner" / "testdata"


class Settings(BaseSettings):
    """What a runner needs to know. Names are those of the environment, in lower case."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    backend_url: HttpUrl
    runner_registration_token: SecretStr = Field(min_length=1)
    runner_name: str = Field(default_factory=socket.gethostname, min_length=1, max_length=64)
    runner_jobs: int = Field(default=2, ge=1, le=64)
    # More jobs at once than cores: times are then less certain.
    runner_share_cores: bool = False
    runner_cache_dir: Path = Field(default_factory=_default_cache_dir)

    @field_validator("runner_registration_token")
    @classmethod
    def _is_a_header_value(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().isprintable():
            raise ValueError("holds characters that cannot be printed")
        return value


def load_settings() -> Settings:
    """Read the environment. Raises SettingsError."""
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(_in_one_line(error)) from None


def _in_one_line(error: ValidationError) -> str:
    """Say what is wrong by the names of the environment."""
    return "; ".join(
        f"{str(fault['loc'][0]).upper()}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ).replace("\n", " ")
