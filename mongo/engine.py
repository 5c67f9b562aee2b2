"""The domain's documents, their indexes, and the connection they live on.

Guarantees: one client per process, made by `connect` (after a server's fork); acknowledged
writes are on a majority's disks, and what is read a majority has, unless it says `newest`; times
come back in UTC with zone. Documents that carry state are changed by atomic updates only, never by
`.save()` after their creation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import mongoengine
from mongoengine import fields
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

ALIAS = mongoengine.DEFAULT_CONNECTION_NAME
DEFAULT_DATABASE = "judge"

APP_NAME = "judge-dispatch"
CLIENT_OPTIONS: dict[str, Any] = {
    "tz_aware": True,
    "uuidRepresentation": "standard",
    "w": "majority",
    "journal": True,
    "wTimeoutMS": 10_000,
    "retryWrites": True,
    # A read is of what a majority has, which no failover takes back: see `newest`.
    "readConcernLevel": "majority",
    # A primary that hangs is noticed in seconds, not in the driver's default half minute.
    "connectTimeoutMS": 2_000,
    "socketTimeoutMS": 20_000,
    "serverSelectionTimeoutMS": 5_000,
    "heartbeatFrequencyMS": 1_000,
    "appname": APP_NAME,
}


class User(mongoengine.Document):  # type: ignore[misc]
    """A user and the counters recomputed from the user's submissions, by way of the `tally`."""

    name = fields.StringField(primary_key=True)
    display_name = fields.StringField(null=True)
    submission = fields.IntField(default=0)
    AC_submission = fields.IntField(default=0)
    AC_problem_ids = fields.ListField(fields.IntField())
    tally = fields.DictField()
    version = fields.IntField(default=0)
    meta = {"collection": "users", "auto_create_index": False, "strict": False}  # noqa: RUF012


class ApiKey(mongoengine.Document):  # type: ignore[misc]
    """The hash of a user's or an admin's key."""

    sha256 = fields.StringField(primary_key=True)
    admin = fields.BooleanField(required=True)
    username = fields.StringField(null=True)
    created_at = fields.DateTimeField(required=True)
    meta = {  # noqa: RUF012
        "collection": "api_keys",
        "auto_create_index": False,
        "strict": False,
        # A user's keys, to list or remove them.
        "indexes": [{"fields": ["username"], "name": "username"}],
    }


class Problem(mongoengine.Document):  # type: ignore[misc]
    """A problem; `ready` when its tasks and its test data agree.

    `testdata` holds the current test data last and, for a while, what it replaced:
    `{sha256, blob_id, case_counts, size_bytes, replaced_at}`.
    """

    problem_id = fields.IntField(primary_key=True)
    name = fields.StringField(required=True)
    tasks = fields.ListField(fields.DictField())
    allowed_languages = fields.ListField(fields.IntField())
    checker = fields.StringField(default="default")
    testdata = fields.ListField(fields.DictField())
    ready = fields.BooleanField(default=False)
    revision = fields.IntField(default=0)
    meta = {"collection": "problems", "auto_create_index": False, "strict": False}  # noqa: RUF012


class Homework(mongoengine.Document):  # type: ignore[misc]
    """A homework's settings. `recompute_due` is set by every edit until all is recomputed.

    `recompute_until`: somebody is at it, for so long. `recompute_asked_at`: since when it is due.
    """

    homework_id = fields.StringField(primary_key=True)
    name = fields.StringField(required=True)
    start = fields.DateTimeField(required=True)
    end = fields.DateTimeField(required=True)
    penalty = fields.StringField(required=True)
    problem_ids = fields.ListField(fields.IntField())
    students = fields.ListField(fields.StringField())
    departed = fields.ListField(fields.StringField())
    recompute_due = fields.BooleanField(default=False)
    recompute_until = fields.DateTimeField(null=True)
    recompute_asked_at = fields.DateTimeField()
    version = fields.IntField(default=0)
    meta = {  # noqa: RUF012
        "collection": "homeworks",
        "auto_create_index": False,
        "strict": False,
        "indexes": [
            # A landing's homeworks: those of the student.
            {"fields": ["students"], "name": "students"},
            # Edits whose recompute has not finished.
            {
                "fields": ["recompute_due", "homework_id"],
                "name": "recompute_due",
                "partialFilterExpression": {"recompute_due": True},
            },
        ],
    }


class StudentStatus(mongoengine.Document):  # type: ignore[misc]
    """One student's standing in one homework: `problems` maps a problem id to its entry.

    Its id is made of both (`status_id`), so that two first landings cannot make two.
    """

    status_id = fields.StringField(primary_key=True)
    homework_id = fields.StringField(required=True)
    username = fields.StringField(required=True)
    problems = fields.DictField()
    version = fields.IntField(default=0)
    meta = {  # noqa: RUF012
        "collection": "student_status",
        "auto_create_index": False,
        "strict": False,
        "indexes": [
            # A homework's standings, in the students' order.
            {"fields": ["homework_id", "username"], "name": "homework", "unique": True},
            # A landing's standings: those of the student.
            {"fields": ["username"], "name": "student"},
        ],
    }


class Submission(mongoengine.Document):  # type: ignore[misc]
    """A submission: who handed in what, what was last landed, and what of it counts.

    `status` is what is shown: -1 while a judging is under way. `result` is the last landed
    result, with its job and fence. `counted` is what counters and homeworks read: the last real
    result, or a judge error where there has been none.
    """

    submission_id = fields.StringField(primary_key=True)
    username = fields.StringField(required=True)
    problem_id = fields.IntField(required=True)
    language = fields.IntField(required=True)
    code_blob = fields.DynamicField(required=True)
    submitted_at = fields.DateTimeField(required=True)
    status = fields.IntField(required=True)
    job_id = fields.StringField(required=True)
    fence = fields.IntField(default=0)
    result = fields.DictField(null=True)
    counted = fields.DictField(null=True)
    meta = {  # noqa: RUF012
        "collection": "submissions",
        "auto_create_index": False,
        "strict": False,
        "indexes": [
            # Counters and standings, from the index alone: a student's submissions to one problem,
            # in the order in which they count, with what counts of them.
            {
                "fields": [
                    "username",
                    "problem_id",
                    "submitted_at",
                    "submission_id",
                    "counted.status",
                    "counted.score",
                ],
                "name": "counting",
            },
            # Lists, newest first: of all, of a user, of a problem.
            {"fields": ["-submitted_at", "-submission_id"], "name": "newest"},
            {"fields": ["username", "-submitted_at", "-submission_id"], "name": "user_newest"},
            {
                "fields": ["problem_id", "-submitted_at", "-submission_id"],
                "name": "problem_newest",
            },
            # Judge errors, newest first: few among many, and looked at again and again.
            {
                "fields": ["status", "-submitted_at", "-submission_id"],
                "name": "judge_errors",
                "partialFilterExpression": {"status": 6},
            },
            # Submissions that wait, for the sweep that finds those without a job.
            {
                "fields": ["status", "submission_id"],
                "name": "waiting",
                "partialFilterExpression": {"status": -1},
            },
        ],
    }


DOCUMENTS = (User, ApiKey, Problem, Homework, StudentStatus, Submission)


def connect(uri: str) -> Database[dict[str, Any]]:
    """Open this process's client on `uri` and return the database it names.

    Raises:
        pymongo.errors.ConfigurationError: the URI is malformed. Whether the server answers is
            not asked here.
    """
    mongoengine.disconnect(ALIAS)
    client: MongoClient[dict[str, Any]] = mongoengine.connect(
        db=_database_name(uri), host=uri, alias=ALIAS, **CLIENT_OPTIONS | {"appname": app_name(uri)}
    )
    return client[_database_name(uri)]


def app_name(uri: str) -> str:
    """Return what the database's log calls this process: the URI's `appName`, or the service's."""
    named = {name.lower(): value for name, value in parse_qsl(urlsplit(uri).query)}
    return named.get("appname") or APP_NAME


def connect_in_process() -> Database[dict[str, Any]]:
    """Open the in-process store: for trying things out where no `mongod` runs."""
    from mongo.in_process import SerialisedMongoClient

    mongoengine.disconnect(ALIAS)
    client: MongoClient[dict[str, Any]] = mongoengine.connect(
        db=DEFAULT_DATABASE,
        host="mongodb://localhost",
        alias=ALIAS,
        mongo_client_class=SerialisedMongoClient,
        tz_aware=True,
        uuidRepresentation="standard",
    )
    return client[DEFAULT_DATABASE]


def disconnect() -> None:
    """Close this process's client."""
    mongoengine.disconnect(ALIAS)


def create_indexes() -> None:
    """Create every index of the domain. Explicit: a dropped database does not get them back."""
    for document in DOCUMENTS:
        document.ensure_indexes()


def stored(number: int) -> Any:
    """Match a field that holds `number`; 0 is also what an older version's document without it is.

    What is written under such a guard has the field from then on.
    """
    return number or {"$in": [0, None]}


def at_most(number: int) -> dict[str, Any]:
    """Match a field that is not above `number`, nor there at all. (`$lte` would miss those.)"""
    return {"$not": {"$gt": number}}


def submissions() -> Collection[dict[str, Any]]:
    """Return the raw collection, for guarded updates and aggregations."""
    return _collection(Submission)


def newest(collection: Collection[dict[str, Any]]) -> Collection[dict[str, Any]]:
    """Return the collection as the primary has it, with what a failover may still take back.

    Never to do something else because of what is read there. Where it may be used is listed in
    the tests.
    """
    return collection.with_options(read_concern=ReadConcern("local"))


_IN_ORDER: ContextVar[bool] = ContextVar("in_order", default=False)


@contextmanager
def in_order() -> Iterator[None]:
    """Have what this thread does within see all that it did within, whichever member answers.

    A member that has just been elected may not know yet that a majority has what its predecessor
    acknowledged, and a read of what a majority has would miss it there: counters would be computed
    without the result that has just landed. So all runs in one causally consistent session.
    Within another such block, that one's session goes on.
    """
    client = mongoengine.get_connection()
    if _IN_ORDER.get() or not isinstance(client, MongoClient):  # the in-process store has none
        yield
        return
    token = _IN_ORDER.set(True)
    try:
        with client.start_session(causal_consistency=True).bind():
            yield
    finally:
        _IN_ORDER.reset(token)


def catch_up() -> None:
    """Have what is read from now on (`in_order`) be at least as new as all acknowledged so far.

    By a durable write: a primary that has been cut off, and knows nothing of what another
    acknowledges, does not get it acknowledged. For deletions, which no guard can make safe.

    Raises:
        PyMongoError: this primary may have been cut off.
    """
    if not _IN_ORDER.get() and isinstance(mongoengine.get_connection(), MongoClient):
        raise RuntimeError("only what is read in order can be newer than a write")
    proofs = submissions().database["proofs"]
    proofs.update_one({"_id": 0}, {"$inc": {"given": 1}}, upsert=True)


def users() -> Collection[dict[str, Any]]:
    """Return the raw collection of users."""
    return _collection(User)


def homeworks() -> Collection[dict[str, Any]]:
    """Return the raw collection of homeworks."""
    return _collection(Homework)


def student_statuses() -> Collection[dict[str, Any]]:
    """Return the raw collection of standings."""
    return _collection(StudentStatus)


def problems() -> Collection[dict[str, Any]]:
    """Return the raw collection of problems."""
    return _collection(Problem)


def _collection(document: Any) -> Collection[dict[str, Any]]:
    collection: Collection[dict[str, Any]] = document._get_collection()
    return collection


def _database_name(uri: str) -> str:
    from pymongo.uri_parser import parse_uri

    if uri.startswith("mongodb+srv://"):
        # Resolving the name is the client's business; the path is enough here.
        return uri.rpartition("/")[2].partition("?")[0] or DEFAULT_DATABASE
    return parse_uri(uri)["database"] or DEFAULT_DATABASE
