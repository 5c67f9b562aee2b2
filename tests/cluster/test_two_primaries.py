"""An API process that reaches only a primary that has been deposed says nothing that is not so.

It shows what was so; and it acknowledges nothing, since nothing it writes is on a majority.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.processes import Api, prepare, service_environment
from tests.cluster.replica_set import ReplicaSet
from tests.cluster.wire import TASK_SCORES
from tests.factories import task_bodies


@pytest.fixture
def two_apis(cluster_uri: str, tmp_path: Path) -> Iterator[list[Api]]:
    environment = service_environment(cluster_uri)
    apis = [Api(environment, tmp_path / f"{name}.log") for name in ("lost", "well")]
    try:
        for api in apis:
            api.start()
        for api in apis:
            api.await_ready()
        yield apis
    finally:
        for api in apis:
            api.kill()


@pytest.mark.slow
def test_who_reaches_only_the_deposed_primary_acknowledges_nothing(
    replica_set: ReplicaSet, two_apis: list[Api]
) -> None:
    lost, well = two_apis
    prepare(well)
    assert name_of_problem(lost) == "problem 1"
    replica_set.two_primaries(replica_set.await_healthy(), with_them=[lost.name])
    _until(lambda: rename_problem(well, "renamed") == 200)
    assert name_of_problem(lost) == "problem 1"
    assert rename_problem(lost, "renamed by the lost one") == 503
    replica_set.mend()
    replica_set.await_healthy()
    _until(lambda: name_of_problem(lost) == "renamed")
    assert name_of_problem(well) == "renamed"


def ask(api: Api, method: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {api.environment['ADMIN_API_KEY']}"}
    return httpx.request(method, f"{api.url}/problems/1", headers=headers, json=body, timeout=40)


def name_of_problem(api: Api) -> str | None:
    answer = ask(api, "GET")
    return answer.json()["name"] if answer.status_code == 200 else None


def rename_problem(api: Api, name: str) -> int:
    tasks = task_bodies(*((score, 1) for score in TASK_SCORES))
    return ask(api, "PUT", {"name": name, "tasks": tasks}).status_code


def _until(true: Any) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)
