"""`python serve.py`: the API in the foreground, with a MongoDB of its own if none is named.

Guarantees: SIGTERM or SIGINT lets running requests finish (10 s at most), then ends the API, then
the embedded server, and leaves no process behind; nor does SIGKILL. An embedded server that dies
is started again on its data, also one that another process had started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from local import kept_secret_key, made, start_store, store_uri
from mongo.child import dying_with_parent
from mongo.embedded import EmbeddedError, EmbeddedMongo
from settings import Settings, SettingsError, load_settings

ROOT = Path(__file__).resolve().parent
METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
_STOP_LIMIT_S = 10
_LOOK_EVERY_S = 1.0


class _StopRequested(BaseException):
    """SIGTERM or SIGINT has come."""


def main(app: str | None = None) -> int:
    """Serve until a signal or an error; the exit code. `app` replaces the factory, for tests."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _request_stop)
    try:
        settings = load_settings()
        if settings.mongodb_uri is not None:
            return _run_api(app, {}, None)
        return _serve_locally(app, settings)
    except (SettingsError, EmbeddedError) as error:
        sys.stderr.write(f"serve: {error}\n")
        return 2
    except _StopRequested:
        return 0


def _serve_locally(app: str | None, settings: Settings) -> int:
    server = start_store(settings.data_dir)
    try:
        secret_key = settings.secret_key or kept_secret_key(settings.data_dir)
        environment = {"MONGODB_URI": store_uri(server), "SECRET_KEY": secret_key}
        if not os.environ.get(METRICS_DIR):
            # Here even a killed service leaves no more than the next one clears away.
            metrics = made(settings.data_dir.resolve() / f"metrics-{settings.port}")
            environment[METRICS_DIR] = str(metrics)
        return _run_api(app, environment, server)
    finally:
        if server is not None:
            server.stop()


def _run_api(app: str | None, environment: dict[str, str], server: EmbeddedMongo | None) -> int:
    command = [sys.executable, "-m", "gunicorn", "--config", str(ROOT / "gunicorn_conf.py")]
    api = subprocess.Popen(
        command + ([app] if app else []),
        cwd=ROOT,
        env=os.environ | environment,
        # A terminal's Ctrl-C reaches this process alone, which then stops the API gracefully.
        start_new_session=True,
        preexec_fn=dying_with_parent(),
    )
    try:
        while True:
            try:
                return api.wait(_LOOK_EVERY_S)
            except subprocess.TimeoutExpired:
                _keep_running(server)
    finally:
        _end(api)


def _keep_running(server: EmbeddedMongo | None) -> None:
    """Start an embedded server again that has died, or attach to the one that another started.

    Raises:
        EmbeddedError: it does not come back, or not where the API looks for it.
    """
    if server is None or server.is_running():
        return
    how = f"ended with {server.exit_code()}" if server.owned else "of another process ended"
    sys.stderr.write(f"serve: the embedded mongod {how}; starting it again\n")
    port = server.port
    server.start()
    if server.port != port:
        raise EmbeddedError("the embedded mongod's port has been taken; start the service anew")


def _end(api: subprocess.Popen[bytes]) -> None:
    # The stop is under way; a second signal must not interrupt it half done.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if api.poll() is not None:
        return
    api.terminate()
    try:
        api.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(api.pid, signal.SIGKILL)
        api.wait(_STOP_LIMIT_S)


def _request_stop(number: int, frame: FrameType | None) -> None:
    raise _StopRequested


if __name__ == "__main__":
    sys.exit(main())
