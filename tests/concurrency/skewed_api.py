"""An API process on a host whose wall clock is wrong: requests in on stdin, answers on stdout.

`python -m tests.concurrency.skewed_api <database uri> <seconds fast>`. The wall clock is set
before anything else is imported, so that nothing in the process knows the right time.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from typing import Any

URI, FAST_S = sys.argv[1], float(sys.argv[2])

_time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime


class AnyDatetime(type):
    """Have what was made elsewhere, as by the BSON decoder, be a `datetime` on that host too."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _datetime)


class SkewedDatetime(_datetime, metaclass=AnyDatetime):
    """`datetime` on that host."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> SkewedDatetime:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> SkewedDatetime:
        return cls.now(datetime.UTC).replace(tzinfo=None)


time.time = lambda: _time() + FAST_S
time.time_ns = lambda: _time_ns() + int(FAST_S * 10**9)
datetime.datetime = SkewedDatetime  # type: ignore[misc]


def main() -> None:
    from app import create_app
    from settings import Settings

    app = create_app(
        Settings(
            mongodb_uri=URI,
            secret_key="signs-the-links-of-the-tests",
            runner_registration_token="register-in-the-tests",
            admin_api_key="ak_" + "admin-of-the-tests",
            log_level="CRITICAL",
            runner_checks="off",
        )
    )
    client = app.test_client()
    now = app.extensions["judge_dispatch"].now
    for line in sys.stdin:
        wish: dict[str, Any] = json.loads(line)
        answer = client.open(
            wish["path"], method=wish["method"], headers=wish["headers"], json=wish.get("json")
        )
        told = {
            "status": answer.status_code,
            "body": answer.get_json(silent=True, force=True),
            "wall": datetime.datetime.now(datetime.UTC).timestamp(),
            "now": now().timestamp(),
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
