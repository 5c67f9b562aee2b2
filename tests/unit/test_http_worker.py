"""Slow, silent and malformed clients on real connections: who waits, and what they are told.

Two threads serve; whoever held one would be noticed by the next two requests.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gunicorn.workers.gthread import TConn

from http_worker import PatientWorker

ROOT = Path(__file__).parents[2]
THREADS = 2
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nHo"


@dataclass(frozen=True)
class Server:
    port: int
    log: Path

    def connect(self, *sent: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        for piece in sent:
            connection.sendall(piece)
        return connection

    def serves(self) -> bool:
        with self.connect(GET) as connection:
            return answer(connection).body == b"hello"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        problem: dict[str, Any] = json.loads(self.body)
        assert set(problem) == {"type", "title", "status", "detail", "reason"}
        assert problem["status"] == self.status
        return problem


def answer(connection: socket.socket) -> Answer:
    response = http.client.HTTPResponse(connection)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@contextlib.contextmanager
def serving(folder: Path, kind: str) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "MONGODB_URI": "mongomock://memory",
        "SECRET_KEY": "0123456789abcdef",
        "PORT": str(port),
        "WEB_THREADS": str(THREADS + 8),
        "WAITERS_MAX": "0",
    }
    log = folder / "log"
    command = [sys.executable, "-m", "gunicorn", "--config", "gunicorn_conf.py"]
    command += ["--threads", str(THREADS), "--worker-class", f"tests.unit.quick_http.{kind}"]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*command, "tests.unit.quick_http:create_app()"],
            cwd=ROOT,
            env=environment,
            stderr=out,
        ) as process,
    ):
        try:
            server = Server(port, log)
            until(lambda: "Booting worker" in log.read_text(), process)
            yield server
        finally:
            process.kill()


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Loses its patience soon."""
    with serving(tmp_path_factory.mktemp("quick"), "QuickWorker") as server:
        yield server


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Never loses its patience while a test lasts."""
    with serving(tmp_path_factory.mktemp("slow"), "SlowWorker") as server:
        yield server


@pytest.mark.parametrize("sent", [b"", b"G", HALF, GET[:-1]], ids=["none", "one", "half", "most"])
def test_connections_without_a_whole_header_take_no_thread(slow: Server, sent: bytes) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(slow.connect(sent)) for _ in range(4 * THREADS)]
        assert slow.serves()
        # What is late in coming is served all the same.
        idle[0].sendall(GET[len(sent) :])
        assert answer(idle[0]).body == b"hello"


def test_a_half_header_is_answered_408_in_the_end(quick: Server) -> None:
    with quick.connect(HALF) as connection:
        reply = answer(connection)
        assert (reply.status, reply.problem()["reason"]) == (408, "request_timeout")
        assert reply.headers["connection"] == "close"
        assert closed(connection)


def test_a_header_that_trickles_is_answered_408_too(quick: Server) -> None:
    with quick.connect(HALF) as connection:
        connection.settimeout(0.05)
        for _ in range(200):
            with contextlib.suppress(TimeoutError):
                reply = answer(connection)
                break
            connection.sendall(b"o")
        else:
            pytest.fail("it was let trickle on")
        assert reply.status == 408


@pytest.mark.parametrize(
    "head",
    [
        POST,
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
        b"POST /ignore HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
    ],
    ids=["length", "chunked", "unread"],
)
def test_bodies_that_stall_let_go_of_their_threads(quick: Server, head: bytes) -> None:
    with contextlib.ExitStack() as stack:
        stalled = [stack.enter_context(quick.connect(head, b"1")) for _ in range(4 * THREADS)]
        assert quick.serves()
        for connection in stalled:
            reply = answer(connection)
            if b"/ignore" in head:
                assert reply.body == b"ignored"
            else:
                assert (reply.status, reply.problem()["reason"]) == (408, "request_timeout")
            assert closed(connection)
    assert "Traceback" not in quick.log.read_text()


def test_a_body_that_trickles_is_cut_off(quick: Server) -> None:
    """Each byte comes in time; all of them together do not."""
    head = POST.replace(b" 5", b" 100000")
    with quick.connect(head) as connection:
        connection.settimeout(0.05)
        for _ in range(200):
            with contextlib.suppress(TimeoutError):
                reply = answer(connection)
                break
            connection.sendall(b"o")
        else:
            pytest.fail("it was let trickle on")
        assert reply.status == 408


def test_a_steady_body_may_take_longer_than_the_patience(quick: Server) -> None:
    size = 30 * 2048
    with quick.connect(POST.replace(b" 5", f" {size}".encode())) as connection:
        for _ in range(30):
            connection.sendall(bytes(2048))
            time.sleep(0.03)
        assert len(answer(connection).body) == size


def test_an_answer_that_is_not_taken_lets_go_of_its_thread(quick: Server) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2 * THREADS):
            stack.enter_context(quick.connect(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n"))
        assert quick.serves()
    assert "Traceback" not in quick.log.read_text()


def test_refused_clients_that_linger_hold_up_nobody(slow: Server) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2 * THREADS):
            lingering = stack.enter_context(slow.connect(b"nonsense\r\n\r\n"))
            assert answer(lingering).status == 400
        assert slow.serves()


def test_a_connection_is_kept_and_pauses_between_requests_are_free(quick: Server) -> None:
    with quick.connect() as connection:
        for _ in range(2):
            connection.sendall(GET)
            assert answer(connection).body == b"hello"
            time.sleep(0.6)  # Longer than the patience with a request.
            connection.sendall(POST + b"12")
            connection.sendall(b"345")
            assert answer(connection).body == b"12345"


def test_requests_sent_at_once_are_answered_in_turn(quick: Server) -> None:
    with quick.connect(GET + POST + b"12345" + HALF) as connection:
        with connection.makefile("rb") as stream:
            raw = b""
            while raw.count(b"HTTP/1.1") < 3:
                raw += stream.read1()
        assert raw.count(b"hello") == raw.count(b"12345") == 1
        assert b" 408 " in raw


REFUSED = {
    "content-length": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "coding": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: marker\r\n\r\n", 501),
    "method": (b"marker / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "request line": (b"marker\r\n\r\n", 400),
    "header name": (b"GET / HTTP/1.1\r\n<marker>: x\r\n\r\n", 400),
    "version": (b"GET / HTTP/9.9\r\nHost: marker\r\n\r\n", 400),
    "uri": (b"GET /" + b"marker" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "header": (b"GET / HTTP/1.1\r\nX: " + b"marker" * 2000 + b"\r\n\r\n", 431),
    "headers": (b"GET / HTTP/1.1\r\n" + b"X: marker\r\n" * 500 + b"\r\n", 431),
    "endless header": (b"GET / HTTP/1.1\r\n" + b"X: marker\r\n" * 100_000, 431),
    "expectation": (b"POST / HTTP/1.1\r\nHost: x\r\nExpect: marker\r\n\r\n", 417),
    "chunk": (
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nmarker\r\n",
        400,
    ),
}
REASONS = {
    400: "invalid_request",
    414: "uri_too_long",
    417: "expectation_failed",
    431: "headers_too_large",
    501: "unsupported_transfer_coding",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_request_is_refused_as_a_problem(slow: Server, name: str) -> None:
    sent, status = REFUSED[name]
    with slow.connect() as connection:
        # The endless one is refused before all of it is sent.
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        reply = answer(connection)
        assert (reply.status, reply.problem()["reason"]) == (status, REASONS[status])
        assert b"marker" not in reply.body
        assert closed(connection)
    log = slow.log.read_text()
    assert "marker" not in log
    assert "Traceback" not in log


@pytest.mark.parametrize("lingered", [True, False])
def test_each_connection_is_counted_out_once(lingered: bool) -> None:
    """A stop waits for as many connections as are counted: no request may be missed."""
    worker = PatientWorker.__new__(PatientWorker)
    worker.nr_conns = 2
    here, there = socket.socketpair()
    with there:
        conn = TConn(None, here, None, None)
        if lingered:
            here.close()
        else:
            there.close()
        done: Future[bool] = Future()
        done.set_result(False)
        worker.finish_request(conn, done)
    assert worker.nr_conns == 1
    assert here.fileno() < 0
