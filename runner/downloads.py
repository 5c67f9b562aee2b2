"""Fetching of signed links.

Guarantees: at most `bytes_max` bytes and `TOTAL_S_MAX` seconds per try; no credential is sent,
since a link may lead to another host; the outcome never names the link.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import BinaryIO

import httpx

from runner.retry import DOWNLOAD_DELAYS_S, Sleep, parse_retry_after, repeat

TOTAL_S_MAX = 120.0
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Downloaded:
    """The sink holds the whole object."""

    etag: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NotModified:
    """The service says that the object still is what the given ETag names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadFailed:
    """The object cannot be had. `transient` where asking again may help."""

    detail: str
    transient: bool
    retry_after_s: float | None = None


DownloadResult = Downloaded | NotModified | DownloadFailed


def download(
    http: httpx.Client,
    url: str,
    sink: BinaryIO,
    *,
    bytes_max: int,
    etag: str | None = None,
    sleep: Sleep = time.sleep,
) -> DownloadResult:
    """Fetch `url` into the seekable `sink`, trying again after 1 and 2 s where it may help.

    With `etag` (unquoted) the request is conditional. Failures are returned, not raised.
    """

    def attempt() -> DownloadResult:
        sink.seek(0)
        sink.truncate()
        return _fetch(http, url, sink, bytes_max=bytes_max, etag=etag)

    return repeat(
        attempt,
        unfinished=lambda result: isinstance(result, DownloadFailed) and result.transient,
        retry_after_s=lambda result: (
            result.retry_after_s if isinstance(result, DownloadFailed) else None
        ),
        delays_s=DOWNLOAD_DELAYS_S,
        sleep=sleep,
    )


def _fetch(
    http: httpx.Client, url: str, sink: BinaryIO, *, bytes_max: int, etag: str | None
) -> DownloadResult:
    headers = {} if etag is None else {"If-None-Match": f'"{etag}"'}
    deadline = time.monotonic() + TOTAL_S_MAX
    try:
        with http.stream("GET", url, headers=headers, follow_redirects=True) as answer:
            if answer.status_code == httpx.codes.NOT_MODIFIED and etag is not None:
                return NotModified()
            if answer.status_code != httpx.codes.OK:
                return _refused(answer)
            received = 0
            for chunk in answer.iter_bytes(CHUNK_BYTES):
                received += len(chunk)
                if received > bytes_max:
                    return DownloadFailed(detail=f"over {bytes_max} bytes", transient=False)
                if time.monotonic() > deadline:
                    return DownloadFailed(detail="too slow", transient=True)
                sink.write(chunk)
            return Downloaded(etag=_unquoted(answer.headers.get("ETag")))
    except httpx.HTTPError as error:
        return DownloadFailed(detail=type(error).__name__, transient=True)
    except httpx.InvalidURL:
        return DownloadFailed(detail="not a link", transient=False)


def _refused(answer: httpx.Response) -> DownloadFailed:
    status = answer.status_code
    return DownloadFailed(
        detail=f"answered {status}",
        transient=status >= 500 or status in (408, 429),
        retry_after_s=parse_retry_after(answer.headers.get("Retry-After")),
    )


def _unquoted(etag: str | None) -> str | None:
    return None if etag is None else etag.removeprefix("W/").strip('"')
