"""`serve.py` as a process: what it starts, how it stops, what it leaves."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from local import kept_secret_key
from mongo.embedded import EmbeddedMongo
from settings import SettingsError, load_settings

ROOT = Path(__file__).parents[2]
SERVE = "import serve, sys; sys.exit(serve.main('tests.unit.serve_app:create_app()'))"
WHOLE = "import serve, sys; sys.exit(serve.main())"
NO_MONGOD = "import mongo.embedded; mongo.embedded.find_mongod = lambda: None; "
SETTINGS = (
    *("MONGODB_URI", "SECRET_KEY", "DATA_DIR", "HOST", "PORT"),
    *("WEB_CONCURRENCY", "WEB_THREADS", "WAITERS_MAX", "PROMETHEUS_MULTIPROC_DIR"),
)


def eventually(condition: Callable[[], bool], limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.02)


@dataclass(frozen=True, kw_only=True)
class Service:
    process: subprocess.Popen[str]
    url: str
    errors: Path

    def facts(self) -> dict[str, Any]:
        response = httpx.get(f"{self.url}/facts", timeout=30)
        response.raise_for_status()
        facts: dict[str, Any] = response.json()
        return facts

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.errors.read_text()
        try:
            return self.facts() != {}
        except httpx.HTTPError:
            return False

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextlib.contextmanager
def serving(folder: Path, *, script: str = SERVE, **settings: str) -> Iterator[Service]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment |= {"DATA_DIR": str(folder / "data"), "PORT": str(port), **settings}
    port = environment["PORT"]
    errors = folder / "stderr"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=environment,
            stderr=stderr,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        service = Service(process=process, url=f"http://127.0.0.1:{port}", errors=errors)
        try:
            yield service
        finally:
            process.kill()


def status(service: Service, path: str) -> int:
    """The status of an answer; 0 if there is none."""
    assert service.process.poll() is None, service.errors.read_text()
    try:
        return httpx.get(f"{service.url}{path}", timeout=30).status_code
    except httpx.HTTPError:
        return 0


def gone(processes: list[psutil.Process]) -> bool:
    return not any(
        process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes
    )


@pytest.mark.usefixtures("mongod")  # skips where none can run
@pytest.mark.parametrize("stop", ["sigterm", "ctrl-c"])
def test_a_stop_finishes_requests_and_leaves_nothing_behind(tmp_path: Path, stop: str) -> None:
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        serving(tmp_path, SLOW_DIR=str(tmp_path)) as service,
    ):
        eventually(service.is_up)
        family = service.family()
        assert {process.name() for process in family} >= {"mongod"}
        answer = pool.submit(httpx.get, f"{service.url}/slow", timeout=30)
        eventually((tmp_path / "begun").exists)
        if stop == "sigterm":
            service.process.terminate()
        else:  # a terminal signals the whole process group
            os.killpg(service.process.pid, signal.SIGINT)
        eventually(lambda: "Handling signal" in service.errors.read_text())
        (tmp_path / "end").touch()
        assert answer.result().text == "finished"
        assert service.process.wait(30) == 0
        assert gone(family)
        assert '"exitCode":0' in (tmp_path / "data" / "mongod" / "mongod.log").read_text()


@pytest.mark.usefixtures("mongod")
def test_a_killed_service_leaves_nothing_behind_and_finds_its_data_again(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        eventually(service.is_up)
        before = service.facts()
        family = service.family()
        assert len(family) >= 4  # mongod, the arbiter, two workers
        service.process.kill()
        eventually(lambda: gone(family), 10)
    port = service.url.rpartition(":")[2]
    stale = tmp_path / "data" / f"metrics-{port}" / "counter_1.db"
    stale.touch()
    with serving(tmp_path, PORT=port) as service:
        eventually(service.is_up)
        assert not stale.exists()
        after = service.facts()
        assert after["rows"] > before["rows"]
        assert after["secret_key"] == before["secret_key"]


@pytest.mark.usefixtures("mongod")
def test_an_embedded_server_that_dies_is_started_again(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        eventually(service.is_up)
        before = service.facts()["rows"]
        (mongod,) = (process for process in service.family() if process.name() == "mongod")
        mongod.kill()
        mongod.wait(10)
        eventually(service.is_up)
        assert service.facts()["rows"] > before


def test_without_mongod_it_says_loudly_that_nothing_survives(tmp_path: Path) -> None:
    with serving(tmp_path, script=NO_MONGOD + SERVE, WEB_CONCURRENCY="2") as service:
        eventually(service.is_up)
        assert service.facts()["uri"] == "mongomock://memory"
        assert len({service.facts()["pid"] for _ in range(20)}) == 1
        (loud,) = (line for line in service.errors.read_text().splitlines() if "***" in line)
        assert "NOTHING WILL SURVIVE" in loud


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"PORT": "eighty"}, "PORT"),
        ({"MONGODB_URI": "mongodb://127.0.0.1:1/judge"}, "SECRET_KEY"),
        ({"SECRET_KEY": "short"}, "SECRET_KEY"),
        ({"SECRET_KEY": " " * 32}, "SECRET_KEY"),
        ({"SECRET_KEY": " \t" * 16 + "short"}, "SECRET_KEY"),
        ({"WEB_CONCURRENCY": "abc"}, "WEB_CONCURRENCY"),
        ({"WEB_CONCURRENCY": "0"}, "WEB_CONCURRENCY"),
        ({"WEB_THREADS": "abc"}, "WEB_THREADS"),
        ({"WEB_THREADS": "215"}, "WEB_THREADS (215) must exceed WAITERS_MAX (208)"),
        ({"WAITERS_MAX": "249"}, "WEB_THREADS (256) must exceed WAITERS_MAX (249)"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_one_line(
    tmp_path: Path, settings: dict[str, str], names: str
) -> None:
    with serving(tmp_path, **settings) as service:
        assert service.process.wait(30) == 2
        (line,) = service.errors.read_text().splitlines()
        assert names in line
        assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("settings", [{"WEB_THREADS": "24", "WAITERS_MAX": "16"}, {}])
def test_threads_may_just_suffice(settings: dict[str, str]) -> None:
    made = load_settings(**{name.lower(): int(value) for name, value in settings.items()})
    assert made.web_threads >= made.waiters_max + 8


@pytest.mark.parametrize("script", [SERVE, NO_MONGOD + SERVE], ids=["mongod", "no mongod"])
@pytest.mark.parametrize("place", ["{folder}/file/data", "/proc/nowhere"])
def test_a_data_folder_that_cannot_be_stops_the_start_with_one_line(
    tmp_path: Path, script: str, place: str
) -> None:
    (tmp_path / "file").touch()
    with serving(tmp_path, script=script, DATA_DIR=place.format(folder=tmp_path)) as service:
        assert service.process.wait(30) == 2
        (line,) = (
            line for line in service.errors.read_text().splitlines() if line and "***" not in line
        )
        assert line.startswith("serve: DATA_DIR: ")
        assert "cannot be used" in line


def test_gunicorn_by_itself_refuses_wrong_settings_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gunicorn", "--config", "gunicorn_conf.py"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        check=False,
        env=os.environ | {"WEB_THREADS": "many", "DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "WEB_THREADS" in line


@pytest.mark.parametrize("left", ["", "\n", " \n"])
def test_a_secret_key_that_a_power_cut_emptied_is_made_anew(tmp_path: Path, left: str) -> None:
    (tmp_path / "secret_key").write_text(left)
    (tmp_path / "secret_key.new").write_text("half writ")
    key = kept_secret_key(tmp_path)
    assert len(key) >= 32
    assert kept_secret_key(tmp_path) == key
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600


def test_a_secret_key_that_cannot_be_kept_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "data" / "secret_key").mkdir(parents=True)
    for place in ("file", "data"):
        with pytest.raises(SettingsError, match=r"DATA_DIR: .* cannot be used: "):
            kept_secret_key(tmp_path / place)


def test_the_secret_key_is_on_disk_before_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def fsync(handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        synced.append((name, (tmp_path / "secret_key").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    kept_secret_key(tmp_path)
    assert synced == [("secret_key.new", False), (tmp_path.name, True)]


def test_the_secret_key_is_kept_and_private(tmp_path: Path) -> None:
    first = kept_secret_key(tmp_path / "new")
    assert len(first) >= 32
    assert kept_secret_key(tmp_path / "new") == first
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["secret_key"]
    assert (tmp_path / "new" / "secret_key").stat().st_mode & 0o777 == 0o600


def test_processes_that_make_the_secret_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(kept_secret_key, [tmp_path] * 64))
    assert len(keys) == 1


@pytest.mark.usefixtures("mongod")
def test_a_server_of_another_process_is_replaced_when_that_one_ends(tmp_path: Path) -> None:
    """As with any command that made the store just before the service came."""
    script = (
        "import sys, pathlib, local; local.start_store(pathlib.Path(sys.argv[1]));"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "data")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        with serving(tmp_path) as service:
            eventually(service.is_up)
            before = service.facts()
            assert "mongod" not in {process.name() for process in service.family()}
            owner.communicate(timeout=30)
            eventually(service.is_up)
            after = service.facts()
            assert after["rows"] > before["rows"]
            assert after["uri"] == before["uri"]
            family = service.family()
            assert "mongod" in {process.name() for process in family}
            service.process.terminate()
            assert service.process.wait(30) == 0
            assert gone(family)


@pytest.mark.parametrize("away", ["hangs", "is gone"])
def test_a_process_that_dies_while_the_database_is_away_comes_back_with_it(
    tmp_path: Path, away: str
) -> None:
    with EmbeddedMongo(tmp_path / "mongo") as server:
        settings = {"MONGODB_URI": server.uri, "SECRET_KEY": "0123456789abcdef"}
        with serving(tmp_path, script=WHOLE, WEB_CONCURRENCY="2", **settings) as service:
            eventually(lambda: status(service, "/readyz") == 200)
            (arbiter,) = psutil.Process(service.process.pid).children()
            victim = arbiter.children()[0]
            if away == "hangs":
                os.kill(server.pid, signal.SIGSTOP)
            else:
                os.kill(server.pid, signal.SIGKILL)
            try:
                victim.kill()
                boots = "database_away_at_start"
                eventually(lambda: boots in service.errors.read_text(), 90)
                assert service.process.poll() is None
                assert arbiter.is_running()
                eventually(lambda: status(service, "/readyz") == 503)
            finally:
                if away == "hangs":
                    os.kill(server.pid, signal.SIGCONT)
            server.start()
            eventually(lambda: status(service, "/readyz") == 200, 60)
            assert len(arbiter.children()) == 2
            # Each of the two processes answers again.
            for _ in range(20):
                eventually(lambda: status(service, "/console/") != 503)


@pytest.mark.usefixtures("mongod")
def test_a_command_that_starts_the_store_stops_it_cleanly_at_its_end(tmp_path: Path) -> None:
    script = "import sys, pathlib, local; print(local.start_store(pathlib.Path(sys.argv[1])).pid)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert not psutil.pid_exists(int(done.stdout))
    assert '"exitCode":0' in (tmp_path / "mongod" / "mongod.log").read_text()
