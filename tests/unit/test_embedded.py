"""The embedded server: data that survive, one server per folder, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from mongo import embedded
from mongo.embedded import (
    EmbeddedError,
    EmbeddedFailed,
    EmbeddedMongo,
    EmbeddedUnavailable,
    attach_or_start,
    find_mongod,
)

ROOT = Path(__file__).parents[2]
STARTER = """
import sys, time
from pathlib import Path
from mongo.embedded import attach_or_start
server = attach_or_start(Path(sys.argv[1]))
print(server.pid, server.owned, server.uri, flush=True)
sys.stdin.read()
server.stop()
"""

if find_mongod() is None and not os.environ.get("CI"):
    pytest.skip("NOT TESTED, no mongod on this machine", allow_module_level=True)


@contextlib.contextmanager
def starter(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that attaches to or starts the folder's server until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(data_dir)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def client_of(server: EmbeddedMongo) -> MongoClient[dict[str, Any]]:
    return MongoClient(server.uri, serverSelectionTimeoutMS=20_000)


class Squatter(socketserver.TCPServer):
    """Something else than a mongod: it hangs up on whoever calls."""

    allow_reuse_address = True


@contextlib.contextmanager
def squatting(port: int) -> Iterator[None]:
    with Squatter(("127.0.0.1", port), socketserver.BaseRequestHandler) as squatter:
        thread = threading.Thread(target=squatter.serve_forever)
        thread.start()
        try:
            yield
        finally:
            squatter.shutdown()
            thread.join()


def crash(server: EmbeddedMongo) -> None:
    process = psutil.Process(server.pid)
    os.kill(server.pid, signal.SIGKILL)
    process.wait(10)


def test_it_is_a_writable_replica_set_on_loopback_alone(mongod: EmbeddedMongo) -> None:
    with client_of(mongod) as client:
        hello = client.admin.command("hello")
        assert hello["setName"] == "rs0"
        assert hello["isWritablePrimary"]
    listening = {
        connection.laddr.ip
        for connection in psutil.Process(mongod.pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_fail_points_are_for_those_who_ask(mongod: EmbeddedMongo, tmp_path: Path) -> None:
    ping = {"configureFailPoint": "failCommand", "mode": "off"}
    with client_of(mongod) as client:
        client.admin.command(ping)
    with (
        EmbeddedMongo(tmp_path) as plain,
        client_of(plain) as client,
        pytest.raises(OperationFailure, match="configureFailPoint"),
    ):
        client.admin.command(ping)


def test_data_survive_a_clean_stop_and_a_crash_on_the_same_port(tmp_path: Path) -> None:
    with EmbeddedMongo(tmp_path) as server:
        first = server.uri
        with client_of(server) as client:
            client.judge.kept.insert_one({"_id": "before the stop"})
    with EmbeddedMongo(tmp_path) as server:
        with client_of(server) as client:
            client.judge.kept.insert_one({"_id": "before the crash"})
        crash(server)
        server.start()
        with client_of(server) as client:
            assert {row["_id"] for row in client.judge.kept.find()} == {
                "before the stop",
                "before the crash",
            }
        assert server.uri == first


def test_data_survive_a_crash_when_the_port_is_taken_meanwhile(tmp_path: Path) -> None:
    with EmbeddedMongo(tmp_path) as server:
        with client_of(server) as client:
            client.judge.kept.insert_one({"_id": 1})
        port = server.port
        crash(server)
        with squatting(port):
            server.start()
            assert server.port != port
            with client_of(server) as client:
                assert client.judge.kept.count_documents({}) == 1
                client.judge.kept.insert_one({"_id": 2})


def test_a_second_process_attaches_and_leaves_the_server_running(tmp_path: Path) -> None:
    with EmbeddedMongo(tmp_path) as server, starter(tmp_path) as other:
        assert other.stdout is not None
        assert other.stdout.readline().split() == [str(server.pid), "False", server.uri]
        other.communicate(timeout=30)
        assert other.returncode == 0
        with client_of(server) as client:
            client.admin.command("ping")


def test_of_many_starters_at_once_one_starts_and_the_others_attach(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(starter(tmp_path)) for _ in range(4)]
        said = [process.stdout.readline().split() for process in processes if process.stdout]
        assert sorted(owned for _, owned, _ in said) == ["False", "False", "False", "True"]
        assert len({pid for pid, _, _ in said}) == 1
        assert len({uri for _, _, uri in said}) == 1


def test_a_killed_owner_takes_the_server_along_and_the_next_one_recovers(tmp_path: Path) -> None:
    with starter(tmp_path) as owner:
        assert owner.stdout is not None
        pid, owned, uri = owner.stdout.readline().split()
        assert owned == "True"
        process = psutil.Process(int(pid))
        with MongoClient[dict[str, Any]](uri) as client:
            client.judge.kept.insert_one({"_id": 1})
        owner.kill()
        # At once, while the old server may still be dying.
        with EmbeddedMongo(tmp_path) as server:
            assert server.owned
            # Its parent is dead too: who reaps it, and when, is the machine's affair.
            assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
            with client_of(server) as client:
                assert client.judge.kept.count_documents({}) == 1


def test_whoever_attached_sees_the_server_end_and_takes_over_on_its_port(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(starter(tmp_path))
        assert owner.stdout is not None
        pid, _, uri = owner.stdout.readline().split()
        server = stack.enter_context(EmbeddedMongo(tmp_path))
        assert not server.owned
        assert server.is_running()
        with client_of(server) as client:
            client.judge.kept.insert_one({"_id": 1})
        owner.communicate(timeout=30)
        assert not server.is_running()
        server.start()
        assert server.owned
        assert server.is_running()
        assert server.uri == uri
        assert server.pid != int(pid)
        with client_of(server) as client:
            assert client.judge.kept.count_documents({}) == 1


def test_a_server_that_is_slow_to_answer_still_runs(tmp_path: Path) -> None:
    with EmbeddedMongo(tmp_path) as owner:
        attached = attach_or_start(tmp_path)
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            assert attached.is_running()
        finally:
            os.kill(owner.pid, signal.SIGCONT)


def test_a_dead_server_whose_number_another_process_has_does_not_run(tmp_path: Path) -> None:
    with EmbeddedMongo(tmp_path) as owner:
        attached = attach_or_start(tmp_path)
        attached._pid = os.getpid()
        assert attached.is_running()
        crash(owner)
        assert not attached.is_running()


def test_a_port_that_another_process_took_does_not_make_a_server_run(tmp_path: Path) -> None:
    with EmbeddedMongo(tmp_path) as owner:
        attached = attach_or_start(tmp_path)
        port, process = owner.port, psutil.Process(owner.pid)
        owner.stop()
        assert not process.is_running()
        with squatting(port):
            assert not attached.is_running()


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
def test_a_folder_that_cannot_be_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedFailed, match=r"DATA_DIR: .* cannot be used: "):
        attach_or_start(tmp_path / place)


def test_stop_leaves_no_process_and_may_be_repeated(tmp_path: Path) -> None:
    server = attach_or_start(tmp_path)
    process = psutil.Process(server.pid)
    server.stop()
    server.stop()
    assert not process.is_running()
    with pytest.raises(EmbeddedError):
        _ = server.uri


@pytest.mark.parametrize("state", ["", "nonsense", "-1", "0", "99999999", "1\n2"])
def test_a_damaged_port_file_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    (tmp_path / "mongod").mkdir()
    (tmp_path / "mongod" / "port").write_text(state)
    monkeypatch.setattr(embedded, "find_mongod", lambda: None)
    with pytest.raises(EmbeddedUnavailable):  # it got as far as looking for the program
        attach_or_start(tmp_path)


def test_a_port_file_naming_the_server_of_another_folder_is_not_believed(
    mongod: EmbeddedMongo, tmp_path: Path
) -> None:
    (tmp_path / "mongod").mkdir()
    (tmp_path / "mongod" / "port").write_text(str(mongod.port))
    with EmbeddedMongo(tmp_path) as server:
        assert server.owned
        assert server.pid != mongod.pid


def fake_mongod(folder: Path, script: str) -> None:
    program = folder / "mongod"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_one_in_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mongod(tmp_path, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_mongod() == tmp_path / "mongod"


def test_no_mongod_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_mongod", lambda: None)
    with pytest.raises(EmbeddedUnavailable, match="no mongod"):
        attach_or_start(tmp_path)


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo cannot open shared object file; exit 127", EmbeddedUnavailable, "shared object"),
        ("kill -ILL $$", EmbeddedUnavailable, "cannot run on this machine"),
        ("echo data of a newer version; exit 62", EmbeddedFailed, "data of a newer version"),
    ],
)
def test_a_start_that_fails_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    error: type[EmbeddedError],
    words: str,
) -> None:
    (tmp_path / "bin").mkdir()
    fake_mongod(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    with pytest.raises(error, match=words):
        attach_or_start(tmp_path / "data")


def test_a_file_that_is_no_program_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mongod").write_bytes(b"\x7fELF for another machine")
    (tmp_path / "mongod").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(EmbeddedUnavailable, match="cannot be run"):
        attach_or_start(tmp_path / "data")
