"""The database's disk is full: 503, nothing acknowledged is lost, and it goes on with room again.

On a small file system of its own, in memory.
"""

from __future__ import annotations

import base64
import errno
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pymongo import MongoClient

from mongo.embedded import EmbeddedMongo
from tests.live import prepare, start_service

SIZE_MIB = 500
TRIES_MAX = 400


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED, no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room that there is; removing the file gives it back."""
    filler = folder / "filler"
    piece = b"\0" * 2**20
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(piece) == len(piece):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return filler


def hand_in(admin: httpx.Client, number: int) -> int:
    """Hand in a program of some size that does not compress; return the status, 0 for none."""
    # A connection of its own: where a 503 comes before the body was read, the last one is closed.
    code = b"# " + base64.b64encode(os.urandom(300_000)) + b"\n"
    form = {
        "problem_id": "1",
        "language": "2",
        "username": "ada",
        "submission_id": f"s{number}",
    }
    try:
        answer = httpx.post(
            admin.base_url.join("/submissions"),
            headers=admin.headers,
            data=form,
            files={"code": ("main.py", code)},
            timeout=40,
        )
        return answer.status_code
    except httpx.TransportError:
        return 0


@pytest.mark.slow
def test_a_full_disk_is_503_and_nothing_acknowledged_is_lost(
    small_disk: Path, tmp_path: Path
) -> None:
    server = EmbeddedMongo(small_disk)
    server.start()
    service = None
    try:
        service = start_service(server.uri_for("judge"), tmp_path / "service.log")
        with service.admin() as admin:
            prepare(admin)
            _fill_and_recover(server, admin, small_disk)
    finally:
        if service is not None and service.process.poll() is None:
            service.stop()
        server.stop()


def _fill_and_recover(server: EmbeddedMongo, admin: httpx.Client, disk: Path) -> None:
    taken_in = [number for number in range(3) if hand_in(admin, number) == 201]
    assert taken_in == [0, 1, 2]
    filler = fill(disk)
    statuses: Counter[int] = Counter()
    for number in range(3, TRIES_MAX):
        status = hand_in(admin, number)
        statuses[status] += 1
        if status == 201:
            taken_in.append(number)
        elif statuses[503] >= 2:
            break
    assert statuses[503] >= 2, statuses
    assert set(statuses) <= {201, 503}, statuses
    filler.unlink()
    server.start()  # what a supervisor does, should the server have ended over it
    again = TRIES_MAX
    until = time.monotonic() + 60
    while hand_in(admin, again) != 201:
        assert time.monotonic() < until
        again += 1
    for number in (*taken_in, again):
        shown = admin.get(f"/submissions/s{number}")
        assert (shown.status_code, shown.json()["verdict"]) == (200, "PENDING")
        assert admin.get(f"/submissions/s{number}/code").status_code == 200
    assert admin.get("/readyz").status_code == 200
    with MongoClient(server.uri_for("judge")) as client:
        database = client.get_default_database()
        known = {job["_id"] for job in database["jobs"].find({}, {"_id": 1})}
    assert {f"s{number}" for number in (*taken_in, again)} <= known
