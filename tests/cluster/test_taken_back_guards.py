"""What the rules about reads and writes rest on, as the server really does it."""

from __future__ import annotations

import pytest
from mongoengine.errors import NotUniqueError
from pymongo.database import Database
from pymongo.errors import PyMongoError

from dispatch.concerns import proven
from mongo import engine
from mongo.bulk import upsert_each
from tests.cluster.asking import Ask, Asked, Served, overtaken, phantom
from tests.cluster.cut_off import Document
from tests.cluster.replica_set import ReplicaSet


def test_whether_a_guard_holds_is_told_only_when_a_majority_has_what_it_saw(
    replica_set: ReplicaSet, served: Served
) -> None:
    service = served(None)
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "s1")
    jobs = service.services.queue.jobs.jobs
    change = {"$set": {"touched": True}}

    def write(database: Database[Document]) -> None:
        for name in ("submissions", "jobs"):
            database[name].update_many({}, {"$inc": {"fence": 1}})
        database["student_status"].insert_one({"_id": "hw/ada", "version": 1})
        database["users"].insert_one({"_id": "zoe"})

    def lost() -> list[int]:
        guarded = ({"_id": "hw/ada", "version": 7}, change)
        return upsert_each(engine.student_statuses(), [guarded])

    asks: dict[str, Ask] = {
        "find_one_and_update": lambda: engine.submissions().find_one_and_update(
            {"_id": "s1", "fence": 0}, change
        ),
        "update_one": lambda: engine.submissions().update_one({"_id": "s1", "fence": 0}, change),
        "of a job": lambda: jobs.find_one_and_update({"_id": "s1", "fence": 1}, change),
        "update_many": lambda: jobs.update_many({"_id": "s1", "fence": 1}, change),
        "delete_many": lambda: jobs.delete_many({"_id": "s1", "fence": 1}),
        "upsert_each": lost,
        "insert_one": lambda: engine.users().insert_one({"_id": "zoe"}),
        "save": lambda: engine.User(name="zoe").save(force_insert=True),
    }
    with phantom(replica_set, service, write) as fail_over:
        asked = Asked(asks)
        assert asked.answered() == set()
        raised = asked.outcomes()  # each gives up by itself: nobody else can be asked
        fail_over()
    for name, error in raised.items():
        assert isinstance(error, PyMongoError | NotUniqueError), (name, error)


def test_what_a_majority_has_may_be_old_and_a_guard_says_no_more_than_that(
    replica_set: ReplicaSet, served: Served
) -> None:
    """So a guard that does not hold is no proof, where what is newer could make it hold."""
    service = served(None)
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "s1")

    def write(database: Database[Document]) -> None:
        database["submissions"].update_one({"_id": "s1"}, {"$set": {"newer": True}})

    with overtaken(replica_set, service, write):
        newer = {"_id": "s1", "newer": True}
        assert engine.submissions().find_one(newer) is None
        assert engine.submissions().find_one_and_update(newer, {"$set": {"met": 1}}) is None
        with pytest.raises(PyMongoError), proven(engine.submissions().database):
            pytest.fail("proven by one who knows too little")
        with engine.in_order(), pytest.raises(PyMongoError):
            engine.catch_up()
