"""The files around the code: locks, compose, images, scripts."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.txt", "requirements-dev.txt")
SECRETS = ("SECRET_KEY", "ADMIN_API_KEY", "RUNNER_REGISTRATION_TOKEN")


def pins(lock: str) -> dict[str, str]:
    """Package to version."""
    text = (ROOT / lock).read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


def normalised(requirement: str) -> str:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_every_package_by_hash_and_names_no_host(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins(lock)) > 20
    for entry in entries:
        assert "--hash=sha256:" in entry, entry
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host|@ ?file", text)


def test_the_locks_hold_what_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime, everything = (pins(lock) for lock in LOCKS)
    extras = project["optional-dependencies"]
    assert {normalised(name) for name in project["dependencies"]} <= set(runtime)
    assert {normalised(name) for extra in extras.values() for name in extra} <= set(everything)
    assert runtime.items() <= everything.items()
    assert not any(name.startswith("fiftyone") for name in runtime)


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = compose["services"]
    return found


def test_compose_has_a_replica_set_that_initiates_itself(services: dict[str, Any]) -> None:
    mongo = services["mongo"]
    assert "--replSet" in mongo["command"]
    check = " ".join(mongo["healthcheck"]["test"])
    assert "rs.initiate" in check
    assert "isWritablePrimary" in check
    assert services["api"]["depends_on"]["mongo"] == {"condition": "service_healthy"}
    assert "replicaSet=rs0" in services["api"]["environment"]["MONGODB_URI"]


def test_compose_has_no_default_for_a_secret(services: dict[str, Any]) -> None:
    given = {
        (service, name): value
        for service, definition in services.items()
        for name, value in definition.get("environment", {}).items()
        if name in SECRETS
    }
    assert {name for service, name in given if service == "api"} == set(SECRETS)
    assert {name for service, name in given if service == "runner"} == {SECRETS[2]}
    for (_, name), value in given.items():
        assert value.startswith(f"${{{name}:?")
    example = (ROOT / ".env.example").read_text().splitlines()
    assert all(f"{name}=" in example for name in SECRETS)


def test_compose_keeps_runners_from_the_database(services: dict[str, Any]) -> None:
    assert not set(services["runner"]["networks"]) & set(services["mongo"]["networks"])
    assert "ports" not in services["mongo"]
    assert all(port.startswith("127.0.0.1:") for port in services["api"]["ports"])


def test_the_images_are_what_compose_builds(services: dict[str, Any]) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    stages = dict(
        re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", dockerfile, re.MULTILINE | re.DOTALL)
    )
    assert {services[name]["build"]["target"] for name in ("api", "runner")} <= set(stages)
    assert re.search(r"^USER (?!root)\w+$", stages["api"], re.MULTILINE)
    assert "bubblewrap libseccomp2 gcc g++" in stages["runner"]
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    modules = {path.name for path in ROOT.glob("*.py")}
    assert modules <= set(re.findall(r"\w+\.py", stages["api"]))
    for package in ("api", "commands", "console", "dispatch", "mongo"):
        assert f"COPY {package} {package}\n" in stages["api"]
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        for source in copied.split():
            assert (ROOT / source).exists(), source
            assert f"!{source}" in allowed


def test_new_env_makes_secrets_once(tmp_path: Path) -> None:
    (tmp_path / ".env.example").write_text((ROOT / ".env.example").read_text())
    command = [str(ROOT / "scripts/new-env"), str(tmp_path)]
    subprocess.run(command, check=True)
    made = tmp_path / ".env"
    text = made.read_text()
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert all(len(values[name]) >= 64 for name in SECRETS)
    assert len({values[name] for name in SECRETS}) == 3
    assert values["ADMIN_API_KEY"].startswith("ak_")
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0
    assert made.read_text() == text


def test_system_deps_names_what_is_missing(tmp_path: Path) -> None:
    tools = {**os.environ, "PYTHON": "python-without-venv"}
    told = subprocess.run(
        [str(ROOT / "scripts/system-deps"), "--check"],
        env=tools,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "python3-venv" in told.stdout.split()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("", ""), None),
        (("    --hash=sha256:", "    # "), "has no hash"),
        (("flask==", "flask==0."), "flask"),
        (("flask==", "flask>="), "flask>="),
        (("click==", "clock=="), "click"),
    ],
)
def test_locks_and_environment_are_checked(
    tmp_path: Path, change: tuple[str, str], told: str | None
) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/check-locks", tmp_path / "scripts")
    for lock in LOCKS:
        (tmp_path / lock).write_text((ROOT / lock).read_text().replace(*change))
    done = subprocess.run(
        [sys.executable, "scripts/check-locks"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == (told is not None), done.stderr
    assert (told or "") in done.stderr


def test_the_api_s_container_is_an_ordinary_user_that_may_do_nothing_else(
    services: dict[str, Any],
) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    stage = dockerfile.partition(" AS api\n")[2].partition("\nFROM ")[0]
    users = re.findall(r"^USER (\S+)$", stage, re.MULTILINE)
    made = re.search(r"^RUN useradd .*--uid (\d+) .*--shell \S*nologin (\S+)$", stage, re.MULTILINE)
    assert made is not None
    assert users == [made[2]]
    assert int(made[1]) > 0
    # Nothing is copied or run as that user, so that its files are not its own to change.
    assert not re.search(r"^(COPY|RUN|ADD) ", stage.partition("USER ")[2], re.MULTILINE)
    assert not re.search("|".join(SECRETS), dockerfile)
    assert "MONGODB_URI:?" in stage, "it refuses to start on nothing"
    api = services["api"]
    assert api["read_only"] is True
    assert api["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in api["security_opt"]
    assert "user" not in api
