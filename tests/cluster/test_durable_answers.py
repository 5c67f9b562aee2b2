"""Nobody is told what a failover can still take back.

The secondaries stop applying: what the primary writes is there, and on no majority.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pymongo import WriteConcern

from tests.cluster.replica_set import ReplicaSet
from tests.factories import Service

SOFT = WriteConcern(1)


@contextmanager
def not_replicating(replica_set: ReplicaSet) -> Iterator[None]:
    """Have no secondary apply anything."""
    primary = replica_set.await_healthy()
    with ExitStack() as stack:
        for member in replica_set.members:
            if member is not primary:
                client = stack.enter_context(member.client(limit_s=5))
                stop: dict[str, Any] = {"configureFailPoint": "rsSyncApplyStop"}
                client.admin.command({**stop, "mode": "alwaysOn"})
                stack.callback(client.admin.command, {**stop, "mode": "off"})
        yield


def test_i1_a_result_that_is_on_no_majority_has_not_landed(
    replica_set: ReplicaSet, cluster_service: Service
) -> None:
    service = cluster_service
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    job_id = service.claim(runner)["job_id"]
    jobs = service.database["jobs"].with_options(write_concern=SOFT)
    submissions = service.database["submissions"].with_options(write_concern=SOFT)
    with not_replicating(replica_set):
        # As another process has written it, which waits for a majority.
        jobs.update_one({"_id": "s1"}, {"$set": {"state": "done", "outcome": "verdict"}})
        submissions.update_one({"_id": "s1"}, {"$set": {"status": 0}})
        assert service.view("s1")["verdict"] == "PENDING"
        assert service.services.judge.verdict_of("s1") == -1
        answer = service.complete(runner, job_id, "AC", may_fail=True)
        assert answer.status_code == 503
        # The guard of a landing meets what is on no majority, and waits for that in vain.
        assert answer.get_json(force=True)["reason"] == "database_unavailable"
    # A write of another that is on a majority takes the earlier ones with it.
    service.user("bob")
    assert service.complete(runner, job_id, "AC").status_code == 204
    assert service.view("s1")["verdict"] == "AC"


def test_while_there_is_no_primary_it_is_503_and_not_ready_and_then_goes_on(
    replica_set: ReplicaSet, cluster_service: Service
) -> None:
    service = cluster_service
    key = service.user("ada")
    service.problem(1)
    primary = replica_set.await_healthy()
    for member in replica_set.members:
        if member is not primary:
            member.kill()
    with replica_set.members[primary.number].client() as client:
        # It has lost its majority: it steps down by itself, a little later.
        while client.admin.command("hello")["isWritablePrimary"]:
            pass
    for method, path in (("GET", "/submissions/s1"), ("GET", "/readyz")):
        answer = service.call(method, path, may_fail=True)
        assert answer.status_code == 503, path
        assert int(answer.headers["Retry-After"]) >= 1
    assert service.call("GET", "/healthz", may_fail=True).status_code == 200
    replica_set.mend()
    replica_set.await_healthy()
    submitted = service.submit_over_http(key, problem_id=1, language=2, submission_id="s1")
    assert submitted.status_code == 201
    assert service.call("GET", "/readyz").status_code == 200
