"""How gunicorn runs the API. `serve.py` starts it; so can `gunicorn -c gunicorn_conf.py`.

Guarantees: the in-process store never has a second process; workers end when the arbiter does;
metrics are those of this run alone; a stop takes no longer than `graceful_timeout` and a moment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from prometheus_client import multiprocess

from mongo.child import die_with_parent
from settings import IN_PROCESS_URI, SettingsError, load_settings

try:
    _settings = load_settings()
except SettingsError as error:
    sys.stderr.write(f"gunicorn_conf: {error}\n")
    sys.exit(2)
_METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
# Before any worker imports prometheus_client's values: it decides by this variable, once.
_own_metrics_dir = None if os.environ.get(_METRICS_DIR) else tempfile.mkdtemp(prefix="judge-prom-")
if _own_metrics_dir:
    os.environ[_METRICS_DIR] = _own_metrics_dir

wsgi_app = "app:create_app()"
_host = f"[{_settings.host}]" if ":" in _settings.host else _settings.host
bind = [f"{_host}:{port}" for port in (_settings.port, _settings.metrics_port) if port is not None]
worker_class = "http_worker.PatientWorker"
workers = 1 if _settings.mongodb_uri == IN_PROCESS_URI else _settings.web_concurrency
threads = _settings.web_threads
# Each worker makes its own database client: one that was made before the fork is broken after it.
preload_app = False
# The worker's main loop beats while requests are long; this ends only a worker that hangs whole.
timeout = 60
graceful_timeout = 8
# Longer than a heartbeat's interval, so that runners keep their connection.
keepalive = 20
limit_request_line = 8190
# The workers' beats go here; on a disk that stalls they would be taken for dead.
_memory = Path("/dev/shm")  # noqa: S108  gunicorn makes its own private file in it
worker_tmp_dir = str(_memory) if os.access(_memory, os.W_OK) else None
# The service logs its own events; this is for gunicorn's.
accesslog = None
loglevel = "info"
# A socket with a fixed name in the home folder; two services would fight over it.
control_socket_disable = True


def on_starting(server: Any) -> None:
    """Forget the metrics of an earlier run that shared the folder."""
    for stale in Path(os.environ[_METRICS_DIR]).glob("*.db"):
        stale.unlink()


def post_fork(server: Any, worker: Any) -> None:
    """Tie the worker to the arbiter, so that even a killed one leaves nobody on the port."""
    die_with_parent(signal.SIGKILL, worker.ppid)


def post_worker_init(worker: Any) -> None:
    """Start the housekeeping; at SIGTERM end it, and have waiting polls answered at once."""
    finish = signal.getsignal(signal.SIGTERM)
    service = getattr(worker.app.wsgi(), "extensions", {}).get("judge_dispatch")
    if service is None or not callable(finish):
        return

    def stop_waiting(number: int, frame: Any, finish: Any = finish, service: Any = service) -> None:
        service.housekeeping.stop()
        service.wakeup.close()
        finish(number, frame)

    signal.signal(signal.SIGTERM, stop_waiting)
    service.housekeeping.start()


def child_exit(server: Any, worker: Any) -> None:
    """Drop the gauges of a worker that is gone."""
    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(server: Any) -> None:
    """Remove the metrics folder if it was made here."""
    if _own_metrics_dir:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(_own_metrics_dir)
