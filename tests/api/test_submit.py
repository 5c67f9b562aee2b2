"""Handing in: the order of the checks, odd forms, and I7."""

from __future__ import annotations

import io
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from werkzeug.datastructures import FileStorage, MultiDict

from mongo import storage
from tests.digest import blob_names, digest
from tests.factories import ADMIN_KEY, CODE, DAY, EPOCH, Service, task_bodies

WRONG = "uk_0123456789abcdef0123456789"


@pytest.fixture
def key(service: Service) -> str:
    """A student's key; problem 1 takes Python only, problem 2's homework starts tomorrow."""
    made = service.user("ada")
    service.problem(1)
    service.problem(2)
    body = {"name": "p", "tasks": task_bodies((100, 1)), "allowed_languages": [2]}
    service.ok("PUT", "/problems/1", json=body)
    service.ok("PUT", "/problems/2", json=body)
    service.homework("later", [2], ["ada"], start=EPOCH + DAY, end=EPOCH + 2 * DAY)
    service.submit("ada", 1, "taken")
    return made


def outcome(service: Service, key: str | None, **fields: Any) -> tuple[int, str]:
    answer = service.submit_over_http(key, **fields)
    return answer.status_code, (answer.get_json(force=True) or {}).get("reason", "")


def test_the_checks_come_in_the_contract_s_order(service: Service, key: str) -> None:
    """Each row mends what the row before it was refused for."""
    before = digest(service.database)
    everything_wrong = {
        "problem_id": 99,
        "language": 9,
        "code": b"",
        "submission_id": "taken",
    }
    assert outcome(service, WRONG, **everything_wrong) == (401, "unauthorized")
    assert outcome(service, None, **everything_wrong) == (401, "unauthorized")
    wrong = everything_wrong
    assert outcome(service, key, **wrong) == (404, "unknown_problem")
    wrong = wrong | {"problem_id": 1}
    assert outcome(service, key, **wrong) == (400, "invalid_request")
    wrong = wrong | {"language": 0}
    assert outcome(service, key, **wrong) == (400, "invalid_request")
    wrong = wrong | {"code": CODE}
    assert outcome(service, key, **wrong) == (403, "language_not_allowed")
    wrong = wrong | {"language": 2}
    early = wrong | {"problem_id": 2}
    assert outcome(service, key, **early) == (403, "homework_not_started")
    assert outcome(service, key, **wrong) == (409, "duplicate_submission")
    assert digest(service.database) == before
    assert outcome(service, key, **(wrong | {"submission_id": "free"})) == (201, "")


def test_a_homework_that_starts_now_has_started(service: Service, key: str) -> None:
    service.clock.at = EPOCH + DAY
    assert outcome(service, key, problem_id=2, language=2)[0] == 201


@pytest.mark.parametrize(
    ("fields", "status", "where"),
    [
        ({"problem_id": None}, 400, "problem_id"),
        ({"problem_id": "x"}, 400, "problem_id"),
        ({"problem_id": "-1"}, 400, "problem_id"),
        ({"problem_id": "1.0"}, 400, "problem_id"),
        ({"problem_id": "٣"}, 400, "problem_id"),
        ({"problem_id": ""}, 400, "problem_id"),
        ({"problem_id": "9" * 10}, 404, "there is no problem"),
        ({"problem_id": "9" * 5000}, 400, "problem_id"),
        ({"language": None}, 400, "language"),
        ({"language": "3"}, 400, "language"),
        ({"language": "02"}, 400, "language"),
        ({"language": "python"}, 400, "language"),
        ({"code": None}, 400, "code"),
        ({"submission_id": ""}, 400, "submission_id"),
        ({"submission_id": "a b"}, 400, "submission_id"),
        ({"submission_id": "a/b"}, 400, "submission_id"),
        ({"submission_id": "é"}, 400, "submission_id"),
        ({"submission_id": "x" * 65}, 400, "submission_id"),
        ({"submission_id": "x\n"}, 400, "submission_id"),
        ({"surplus": "1"}, 400, "surplus"),
        ({"username": "bob"}, 403, "username"),
    ],
)
def test_fields_that_are_refused(
    service: Service, key: str, fields: dict[str, Any], status: int, where: str
) -> None:
    form = {"problem_id": "1", "language": "2", "code": CODE.decode(), **fields}
    answer = service.post_form(key, {name: v for name, v in form.items() if v is not None})
    assert answer.status_code == status
    assert answer.get_json(force=True)["detail"].startswith(where)
    assert service.database["submissions"].count_documents({}) == 1


@pytest.mark.parametrize("length", [1, 64])
def test_ids_that_a_client_may_choose(service: Service, key: str, length: int) -> None:
    chosen = ("Az09_-" * 11)[:length]
    answer = service.submit_over_http(key, problem_id=1, language=2, submission_id=chosen)
    assert answer.get_json()["submission_id"] == chosen
    assert service.ok("GET", f"/submissions/{chosen}", key=key)["status"] == -1


def test_the_code_may_be_a_field_or_a_file_or_a_zip(service: Service, key: str) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("main.py", CODE)
    fields = {"problem_id": "1", "language": "2"}
    forms: list[dict[str, Any]] = [
        {**fields, "code": CODE.decode()},
        {**fields, "code": FileStorage(io.BytesIO(CODE), filename="whatever.txt")},
        {**fields, "code": FileStorage(io.BytesIO(packed.getvalue()), filename="main.zip")},
    ]
    stored = set()
    for form in forms:
        answer = service.post_form(key, form)
        assert answer.status_code == 201
        path = f"/submissions/{answer.get_json()['submission_id']}/code"
        stored.add(service.call("GET", path).data)
    assert len(stored) == 1


def test_what_is_sent_twice_is_refused(service: Service, key: str) -> None:
    fields = [("problem_id", "1"), ("language", "2"), ("code", "print()")]
    for name, value in [*fields, ("submission_id", "x"), ("submission_id", "y")]:
        form = MultiDict([*fields, ("submission_id", "x"), (name, value)])
        answer = service.post_form(key, form)
        assert (answer.status_code, answer.get_json(force=True)["reason"]) == (
            400,
            "invalid_request",
        )
    both = MultiDict[str, Any]([*fields, ("code", FileStorage(io.BytesIO(CODE), filename="a"))])
    assert service.post_form(key, both).status_code == 400
    other = MultiDict[str, Any]([*fields, ("more", FileStorage(io.BytesIO(CODE), filename="a"))])
    assert service.post_form(key, other).status_code == 400


@pytest.mark.parametrize(
    ("media_type", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("application/x-www-form-urlencoded", b"problem_id=1&language=2&code=x", 415),
        ("", b"", 415),
        ("multipart/form-data", b"--x\r\n", 400),
        ("multipart/form-data; boundary=", b"--x\r\n", 400),
        ("multipart/form-data; boundary=x", b"", 400),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\nno header\r\n--x--\r\n", 400),
        ("multipart/form-data; boundary=x", b"--y\r\n" * 100, 400),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Disposition: form-data\r\n\r\nno name\r\n--x--\r\n",
            400,
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="code"\r\n\r\nnever ends',
            400,
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="problem_id"\r\n'
            b"Content-Type: text/plain; charset=utf-7\r\n\r\n\xff\xfe\r\n--x--\r\n",
            400,
        ),
    ],
)
def test_odd_forms(service: Service, key: str, media_type: str, body: bytes, status: int) -> None:
    headers = {"Content-Type": media_type}
    answer = service.call("POST", "/submissions", key=key, data=body, headers=headers)
    assert answer.status_code == status


def test_an_admin_must_say_for_whom(service: Service, key: str) -> None:
    assert outcome(service, ADMIN_KEY, problem_id=1, language=2) == (400, "invalid_request")
    fields = {"problem_id": 1, "language": 2, "username": "nobody"}
    assert outcome(service, ADMIN_KEY, **fields) == (404, "unknown_user")
    assert outcome(service, ADMIN_KEY, **(fields | {"username": "ada"})) == (201, "")


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_i7_a_second_submit_touches_nothing_of_the_first(
    service: Service, key: str, judged: bool, same: bool
) -> None:
    runner = service.runner()
    if judged:
        service.judge(runner, "taken", "AC")
    before, blobs = digest(service.database), blob_names(service.database)
    job = service.view_job("taken")
    fields = {"problem_id": 1, "language": 2, "submission_id": "taken"}
    answer = service.submit_over_http(key, **fields, code=CODE if same else b"print(2)")
    assert answer.status_code == 409
    problem = answer.get_json(force=True)
    assert problem["reason"] == "duplicate_submission"
    assert problem["detail"] == "submission taken already submitted"
    assert digest(service.database) == before
    assert blob_names(service.database) == blobs
    assert service.view_job("taken") == job


def test_i7_another_s_id_is_refused_the_same_way(service: Service, key: str) -> None:
    bob = service.user("bob")
    fields = {"problem_id": 1, "language": 2, "submission_id": "taken"}
    assert outcome(service, bob, **fields) == (409, "duplicate_submission")
    assert service.view("taken")["username"] == "ada"


@pytest.mark.parametrize(("inline_bytes_max", "blobs"), [(storage.INLINE_BYTES_MAX, 0), (0, 1)])
def test_i7_of_ten_at_once_exactly_one_is_taken_in(
    service: Service,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
    inline_bytes_max: int,
    blobs: int,
) -> None:
    """All ten have found the id free before any of them stores its submission."""
    runner = service.runner()
    service.judge(runner, "taken", "AC")
    together = threading.Barrier(10)
    original = storage.keep

    def keep(*args: Any, **kwargs: Any) -> storage.Kept:
        kept = original(*args, **kwargs)
        together.wait(30)
        return kept

    monkeypatch.setattr(storage, "INLINE_BYTES_MAX", inline_bytes_max)
    monkeypatch.setattr(storage, "keep", keep)

    def submit(number: int) -> int:
        return service.submit_over_http(
            key, problem_id=1, language=2, submission_id="race", code=f"print({number})".encode()
        ).status_code

    with ThreadPoolExecutor(10) as pool:
        statuses = sorted(pool.map(submit, range(10)))
    assert statuses == [201] + [409] * 9
    monkeypatch.undo()
    assert blob_names(service.database).count("code/race") == blobs
    assert service.database["jobs"].count_documents({"_id": "race"}) == 1
    code = service.call("GET", "/submissions/race/code")
    assert code.status_code == 200
    service.judge(runner, "race", "AC")
    assert service.counters("ada") == (2, 2, [1])
