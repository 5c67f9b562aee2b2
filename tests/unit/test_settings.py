"""Every rule of the settings: one line that names the variable and repeats no value."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from settings import IN_PROCESS_URI, Settings, SettingsError, load_settings

SECRET = "s3cr3t-s3cr3t-s3cr3t"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine reaches the settings."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = load_settings()
    assert settings.mongodb_uri is None
    assert settings.runner_registration_token is None
    assert settings.admin_api_key is None
    assert settings.secret_key is None
    assert settings.public_url is None
    assert settings.data_dir == Path(".data")
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert (settings.lease_ttl_s, settings.heartbeat_interval_s) == (30, 15)
    assert (settings.poll_interval_s, settings.max_attempts) == (3, 3)
    assert settings.max_concurrent_jobs == 8
    assert settings.log_level == "INFO"
    assert (settings.metrics_port, settings.trusted_proxies) == (None, 0)
    assert settings.runner_checks == "on"


def test_the_environment_is_read_by_the_names_of_the_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {
        "MONGODB_URI": "mongodb://db.example/judge?replicaSet=rs0",
        "SECRET_KEY": SECRET,
        "RUNNER_REGISTRATION_TOKEN": "register-here",
        "ADMIN_API_KEY": "ak_" + "a" * 16,
        "PUBLIC_URL": "https://judge.example/",
        "HOST": "0.0.0.0",
        "PORT": "0",
        "LEASE_TTL_S": "2.5",
        "HEARTBEAT_INTERVAL_S": "1",
        "POLL_INTERVAL_S": "0.25",
        "MAX_ATTEMPTS": "5",
        "MAX_CONCURRENT_JOBS": "16",
        "LOG_LEVEL": "debug",
        "DATA_DIR": "elsewhere",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.mongodb_uri == given["MONGODB_URI"]
    assert settings.public_url == "https://judge.example"
    assert (settings.lease_ttl_s, settings.heartbeat_interval_s) == (2.5, 1)
    assert (settings.port, settings.max_attempts, settings.log_level) == (0, 5, "DEBUG")
    assert settings.data_dir == Path("elsewhere")


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MONGODB_URI", "RUNNER_REGISTRATION_TOKEN", "PORT", "ADMIN_API_KEY"):
        monkeypatch.setenv(name, "")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("PORT", "-1"),
        ("PORT", "65536"),
        ("LEASE_TTL_S", "0"),
        ("LEASE_TTL_S", "nan"),
        ("LEASE_TTL_S", "inf"),
        ("LEASE_TTL_S", "29.9"),
        ("LEASE_TTL_S", "3601"),
        ("HEARTBEAT_INTERVAL_S", "0"),
        ("HEARTBEAT_INTERVAL_S", "-15"),
        ("POLL_INTERVAL_S", "0"),
        ("POLL_INTERVAL_S", "61"),
        ("MAX_ATTEMPTS", "0"),
        ("MAX_ATTEMPTS", "1.5"),
        ("MAX_ATTEMPTS", "101"),
        ("MAX_CONCURRENT_JOBS", "0"),
        ("MAX_CONCURRENT_JOBS", "many"),
        ("WAITERS_MAX", "-1"),
        ("INLINE_BYTES_MAX", "-2"),
        ("METRICS_PORT", "0"),
        ("METRICS_PORT", "8080"),
        ("METRICS_PORT", "65536"),
        ("TRUSTED_PROXIES", "-1"),
        ("TRUSTED_PROXIES", "all"),
        ("FAILURES_PER_MIN_MAX", "0"),
        ("LOG_LEVEL", "LOUD"),
        ("RUNNER_CHECKS", "sometimes"),
        ("SECRET_KEY", "too-short-k3y"),
        ("ADMIN_API_KEY", "uk_0123456789abcdef"),
        ("ADMIN_API_KEY", "0123456789abcdef012"),
        ("ADMIN_API_KEY", "ak_0123456789abcde"),
        ("ADMIN_API_KEY", "ak_0123456789abcdef\n"),
        ("ADMIN_API_KEY", "ak_0123456789 abcdef"),
        ("ADMIN_API_KEY", "ak_" + "0" * 198),
        ("PUBLIC_URL", "judge.example"),
        ("PUBLIC_URL", "ftp://judge.example"),
        ("MONGODB_URI", "postgres://user:hunter2@db"),
        ("MONGODB_URI", "mongodb://user:hun:ter2@db"),
        ("MONGODB_URI", "mongodb://user:hunter2@db:port"),
        ("MONGODB_URI", "mongodb://user:hunter2@db/a b"),
        ("MONGODB_URI", IN_PROCESS_URI + "2"),
    ],
)
def test_a_wrong_variable_is_named_in_one_line_without_its_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("SECRET_KEY", SECRET)
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    assert SECRET not in message
    assert "hunter2" not in message
    if name in ("SECRET_KEY", "ADMIN_API_KEY"):
        assert value not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("uri", ["mongodb://db", "mongodb+srv://db.example/judge", IN_PROCESS_URI])
def test_a_database_needs_a_secret_key(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setenv("MONGODB_URI", uri)
    with pytest.raises(SettingsError, match="SECRET_KEY is required when MONGODB_URI is set"):
        load_settings()
    monkeypatch.setenv("SECRET_KEY", SECRET)
    assert load_settings().mongodb_uri == uri


@pytest.mark.parametrize(("lease", "beat"), [("30", "15"), ("2", "1"), ("0.2", "0.1")])
def test_a_lease_outlives_two_heartbeats(
    monkeypatch: pytest.MonkeyPatch, lease: str, beat: str
) -> None:
    monkeypatch.setenv("LEASE_TTL_S", lease)
    monkeypatch.setenv("HEARTBEAT_INTERVAL_S", beat)
    assert load_settings().lease_ttl_s == float(lease)
    monkeypatch.setenv("HEARTBEAT_INTERVAL_S", str(float(beat) * 1.01))
    with pytest.raises(SettingsError, match=r"LEASE_TTL_S.*HEARTBEAT_INTERVAL_S"):
        load_settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        load_settings().port = 1  # type: ignore[misc]
