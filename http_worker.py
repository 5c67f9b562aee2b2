"""How the API's processes take requests in: gunicorn's threads, kept from clients that dawdle.

Guarantees: no thread waits for a request's header, so that half-sent ones hold up nobody; a body
that stalls or trickles, and an answer that is not taken, let go of their thread in bounded time;
what is refused before the service sees it is answered as a problem document (RFC 9457) that
repeats nothing of the request.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

from gunicorn.http.body import Body
from gunicorn.http.errors import (
    ConfigurationProblem,
    ExpectationFailed,
    ForbiddenProxyRequest,
    InvalidResponseHeader,
    InvalidResponseHeaderName,
    LimitRequestHeaders,
    LimitRequestLine,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.http.unreader import SocketUnreader
from gunicorn.util import close_graceful
from gunicorn.workers.gthread import _DEFER, ThreadWorker

# A header that is longer goes on to the parser, whose own limits end it.
HEADER_BYTES_AWAITED = 16 * 1024
# A body that keeps to this rate is never too slow.
BODY_BYTES_PER_S = 1024

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class RequestTimeout(ParseException):  # type: ignore[misc]
    """The client did not send its request in time."""

    def __str__(self) -> str:
        return "the request did not arrive in time"


class UnreadableBody(TimeoutError):
    """The body is late or malformed. To werkzeug and gunicorn: the client is gone."""


_OURS = (ConfigurationProblem, InvalidResponseHeader, InvalidResponseHeaderName)
# The first that fits counts.
_REFUSALS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (RequestTimeout, 408, "request_timeout", "the request did not arrive in time"),
    (LimitRequestLine, 414, "uri_too_long", "the request line is too long"),
    (LimitRequestHeaders, 431, "headers_too_large", "the request's headers are too large"),
    (ExpectationFailed, 417, "expectation_failed", "this expectation cannot be met"),
    (
        UnsupportedTransferCoding,
        501,
        "unsupported_transfer_coding",
        "this transfer coding is not supported",
    ),
    (ForbiddenProxyRequest, 403, "forbidden", "the request is not allowed"),
    (ParseException, 400, "invalid_request", "the request is not well-formed HTTP"),
)


def refusal(error: Exception) -> tuple[int, bytes]:
    """Return the status and the problem document for what ended a request early."""
    if not isinstance(error, _OURS):
        for kind, status, reason, detail in _REFUSALS:
            if isinstance(error, kind):
                return status, _problem(status, reason, detail)
    return 500, _problem(500, "internal_error", "this is our fault; it is logged")


def _problem(status: int, reason: str, detail: str) -> bytes:
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "reason": reason,
    }
    return json.dumps(document).encode()


class PatientUnreader(SocketUnreader):  # type: ignore[misc]
    """Reads one connection, with a patience that ends.

    A header has `header_s` from its first byte. A body has `body_s` of waiting; what arrives
    earns it back, so that a steady sender has no end and one that trickles has.
    """

    def __init__(self, sock: Any, *, header_s: float, body_s: float) -> None:
        super().__init__(sock)
        self._header_s = header_s
        self._header_by: float | None = None
        self._body_s = self._body_left_s = body_s
        self._in_body = False

    def expect_header(self) -> None:
        """Be ready for a request: the first, the next, or more of the one that is arriving."""
        if self._in_body:
            self._in_body, self._header_by = False, None

    def expect_body(self) -> None:
        """The header has been read."""
        self._in_body, self._body_left_s = True, self._body_s

    def header_is_late(self) -> bool:
        """Whether a header that has begun should have been here by now."""
        return (
            not self._in_body
            and self._header_by is not None
            and time.monotonic() >= self._header_by
        )

    def take_header(self) -> bool:
        """Take in what has arrived, without waiting; whether the parser has enough to work on.

        Raises:
            OSError: the connection is broken.
        """
        data = self.take_buffered()
        self.sock.setblocking(False)
        try:
            while True:
                if data and self._header_by is None:
                    self._header_by = time.monotonic() + self._header_s
                if b"\r\n\r\n" in data or len(data) > HEADER_BYTES_AWAITED:
                    return True
                piece = self.sock.recv(self.mxchunk)
                if not piece:
                    return True  # The parser is the one to find the end.
                data += piece
        except BlockingIOError:
            return False
        finally:
            self.unread(data)
            self.sock.setblocking(True)

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Wait for more of the request. Raises RequestTimeout and OSError."""
        began = time.monotonic()
        left_s = self._body_left_s if self._in_body else self._header_left_s(began)
        if left_s <= 0:
            raise RequestTimeout
        given_s = self.sock.gettimeout()
        self.sock.settimeout(left_s if given_s is None else min(left_s, given_s))
        try:
            data: bytes = super().chunk(size_hint)
        except TimeoutError:
            raise RequestTimeout from None
        finally:
            self.sock.settimeout(given_s)
        earned_s = len(data) / BODY_BYTES_PER_S - (time.monotonic() - began)
        self._body_left_s = min(self._body_s, self._body_left_s + earned_s)
        return data

    def _header_left_s(self, now_s: float) -> float:
        return self._header_s if self._header_by is None else self._header_by - now_s


class GuardedBody(Body):  # type: ignore[misc]
    """A request's body that remembers why it could not be read."""

    def __init__(self, req: Any) -> None:
        super().__init__(req.body.reader)
        self._req = req
        self.error: Exception | None = None

    def _read_reader(self, size: int) -> bytes:
        try:
            data: bytes = super()._read_reader(size)
        except ParseException as error:
            self.error = error
            self._req.force_close()
            raise UnreadableBody(type(error).__name__) from error
        return data


def refusing_unreadable_bodies(app: WsgiApp) -> WsgiApp:
    """Wrap `app`: whatever it makes of a body that is late or malformed, say what was wrong."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body: GuardedBody = environ["wsgi.input"]

        def begin(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
            if body.error is not None:
                code, document = refusal(body.error)
                status = f"{code} {HTTPStatus(code).phrase}"
                headers = [
                    ("Content-Type", "application/problem+json"),
                    ("Content-Length", str(len(document))),
                ]
            return start_response(status, headers, *exc_info)

        answer = app(environ, begin)
        if body.error is None:
            return answer
        if hasattr(answer, "close"):
            answer.close()
        return [refusal(body.error)[1]]

    return call


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker, whose threads wait for no header and for nothing without end."""

    header_s = 15.0
    # Well below a lease: even when stalled bodies hold all threads, heartbeats get through in time.
    body_s = 10.0
    # For one piece of an answer; as long as a runner waits for a whole download.
    answer_s = 120.0
    # For a client to hang up after its last answer.
    linger_s = 1.0

    def load_wsgi(self) -> None:
        """Load the service."""
        super().load_wsgi()
        self.wsgi: WsgiApp = refusing_unreadable_bodies(self.app.wsgi())

    def handle(self, conn: Any) -> Any:
        """Serve what has arrived on a connection; in a thread of the pool."""
        outcome = self._handle(conn)
        if outcome is not True and outcome is not _DEFER:
            # Here rather than in the main loop, which others need: a client may stay to linger.
            close_graceful(conn.sock, timeout=self.linger_s)
        return outcome

    def _handle(self, conn: Any) -> Any:
        if not conn.initialized:
            conn.init()
            conn.parser.unreader = PatientUnreader(
                conn.sock, header_s=self.header_s, body_s=self.body_s
            )
        unreader: PatientUnreader = conn.parser.unreader
        unreader.expect_header()
        try:
            arrived = unreader.take_header()
        except OSError as error:
            self.log.debug("Closing a broken connection: %s", error)
            return False
        if arrived or not self.alive:
            return super().handle(conn)
        # The poller waits for the rest.
        return _DEFER

    def handle_request(self, req: Any, conn: Any) -> bool:
        """Have the service answer one request."""
        req.body = GuardedBody(req)
        conn.parser.unreader.expect_body()
        conn.sock.settimeout(self.answer_s)
        try:
            return bool(super().handle_request(req, conn))
        except TimeoutError:
            self.log.info("Closing a connection whose client does not take its answer.")
            raise StopIteration from None

    def finish_request(self, conn: Any, fs: Future[Any]) -> None:
        """Let go of a connection or wait for more on it; in the main loop."""
        if conn.sock.fileno() < 0:
            self.nr_conns -= 1
            return
        super().finish_request(conn, fs)

    def murder_pending(self) -> None:
        """Close the connections whose header is late."""
        for conn in [conn for conn in self.pending_conns if conn.parser.unreader.header_is_late()]:
            self.pending_conns.remove(conn)
            self.poller.unregister(conn.sock)
            self.nr_conns -= 1
            self.handle_error(None, conn.sock, conn.client, RequestTimeout())
            conn.close()
        super().murder_pending()

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Answer what gunicorn refuses, or fails at, as a problem."""
        status, document = refusal(exc)
        if status < 500 or isinstance(exc, UnsupportedTransferCoding):
            # The message of the exception would repeat the request.
            self.log.info("Refused a request with %d (%s)", status, type(exc).__name__)
        else:
            self.log.error("Failed at a request", exc_info=exc)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "Connection: close\r\n"
            "Content-Type: application/problem+json\r\n"
            f"Content-Length: {len(document)}\r\n\r\n"
        )
        try:
            client.setblocking(False)
            client.sendall(head.encode() + document)
        except OSError as error:
            self.log.debug("A refusal was not taken: %s", error)
