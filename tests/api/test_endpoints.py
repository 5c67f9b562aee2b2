"""Every endpoint on its good day, and what it leaves behind."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from tests.factories import (
    ADMIN_KEY,
    CODE,
    EPOCH,
    REGISTRATION_TOKEN,
    Service,
    case_body,
    packed_testdata,
    task_bodies,
)
from tests.fixtures import RELAXED

START, END = "2039-12-31T00:00:00Z", "2040-01-08T00:00:00+01:00"


def put_testdata(service: Service, problem_id: int, packed: bytes) -> Any:
    return service.call(
        "PUT",
        f"/problems/{problem_id}/testdata",
        data=packed,
        headers={"Content-Type": "application/zip"},
    )


def test_a_course_is_set_up_over_http(service: Service) -> None:
    created = service.call("PUT", "/users/ada", json={"display_name": "Ada"})
    assert created.status_code == 201
    assert created.get_json() == {
        "username": "ada",
        "display_name": "Ada",
        "submission": 0,
        "AC_submission": 0,
        "AC_problem_ids": [],
    }
    assert service.call("PUT", "/users/ada", json={}).status_code == 200
    assert service.ok("GET", "/users/ada")["display_name"] == "Ada"
    key = service.ok("POST", "/users/ada/keys")["key"]
    assert key.startswith("uk_")
    assert service.ok("GET", "/users/ada", key=key)["username"] == "ada"

    tasks = task_bodies((40, 1), (60, 2))
    problem = {"name": "sums", "tasks": tasks, "allowed_languages": [2, 0]}
    answer = service.call("PUT", "/problems/7", json=problem)
    assert answer.status_code == 201
    assert answer.get_json() == {
        "problem_id": 7,
        "name": "sums",
        "tasks": tasks,
        "allowed_languages": [0, 2],
        "ready": False,
        "testdata_sha256": None,
    }
    packed = packed_testdata(1, 2)
    answer = put_testdata(service, 7, packed)
    assert answer.status_code == 201
    assert put_testdata(service, 7, packed).status_code == 200
    ready = service.ok("GET", "/problems/7")
    assert (ready["ready"], ready["testdata_sha256"]) == (True, answer.get_json()["sha256"])
    assert service.call("PUT", "/problems/7", json=problem).status_code == 200
    assert service.ok("GET", "/problems/7")["ready"]

    homework = {
        "name": "first",
        "start": START,
        "end": END,
        "penalty": "score / 2",
        "problem_ids": [7],
        "students": ["ada"],
    }
    answer = service.call("PUT", "/homeworks/hw-1", json=homework)
    assert answer.status_code == 201
    assert answer.get_json() == {
        **homework,
        "homework_id": "hw-1",
        "start": "2039-12-31T00:00:00.000Z",
        "end": "2040-01-07T23:00:00.000Z",
        "recomputing": False,
        "student_status": {
            "ada": {
                "7": {"score": 0, "rawScore": 0, "problemStatus": None, "submissionIds": []},
            }
        },
    }
    assert service.call("PUT", "/homeworks/hw-1", json=homework).status_code == 200


def test_a_submission_goes_all_the_way(service: Service) -> None:
    key = service.user("ada")
    sha256 = service.problem(7, (40, 1), (60, 2))
    service.homework("hw", [7], ["ada"])
    runner = service.runner()
    assert service.claim(runner) is None

    answer = service.submit_over_http(key, problem_id=7, language=2, submission_id="sn_1")
    assert answer.status_code == 201
    job_id = answer.get_json()["job_id"]
    assert answer.get_json() == {
        "submission_id": "sn_1",
        "job_id": job_id,
        "status": -1,
        "verdict": "PENDING",
    }
    assert answer.headers["Location"].endswith("/submissions/sn_1")
    pending = service.ok("GET", "/submissions/sn_1", key=key)
    assert (pending["verdict"], pending["score"], pending["tasks"]) == ("PENDING", 0, [])
    assert pending["job"]["state"] == "pending"
    assert pending["waits_because"] == "It is the next in line for a free runner."

    payload = service.claim(runner)
    lease_token = payload.pop("lease_token")
    code_url, testdata_url = payload.pop("code_url"), payload.pop("testdata_url")
    assert payload == {
        "job_id": job_id,
        "submission_id": "sn_1",
        "problem_id": 7,
        "language": 2,
        "checker": "default",
        "tasks": [
            {"taskScore": 40, "memoryLimit": 65536, "timeLimit": 1000, "caseCount": 1},
            {"taskScore": 60, "memoryLimit": 65536, "timeLimit": 1000, "caseCount": 2},
        ],
        "attempt": 1,
        "testdata_sha256": sha256,
    }
    with zipfile.ZipFile(io.BytesIO(service.call("GET", code_url, key=None).data)) as code:
        assert {name: code.read(name) for name in code.namelist()} == {"main.py": CODE}
    data = service.call("GET", testdata_url, key=None)
    assert data.data == packed_testdata(1, 2)
    assert data.headers["ETag"] == f'"{sha256}"'
    cached = service.call(
        "GET", testdata_url, key=None, headers={"If-None-Match": data.headers["ETag"]}
    )
    assert (cached.status_code, cached.data) == (304, b"")
    other = service.call("GET", testdata_url, key=None, headers={"If-None-Match": '"other"'})
    assert other.data == packed_testdata(1, 2)

    beat = {"active_job_ids": [job_id, "jb_other"]}
    assert (
        service.call("POST", runner.path("heartbeat"), key=runner.token, json=beat).status_code
        == 204
    )
    lost = service.ok(
        "POST", runner.path("heartbeat"), key=runner.token, json={**beat, "report_lost": True}
    )
    assert lost == {"lost_job_ids": ["jb_other"]}

    result = {
        "lease_token": lease_token,
        "tasks": [
            [case_body("AC", stdout="out\n", stderr="err\n")],
            [case_body("AC", execTime=50), case_body("WA", memoryUsage=9999, exitCode=3)],
        ],
    }
    path = runner.path(f"jobs/{job_id}/complete")
    assert service.call("PUT", path, key=runner.token, json=result).status_code == 204

    judged = service.ok("GET", "/submissions/sn_1", key=key)
    job = judged.pop("job")
    assert judged == {
        "submission_id": "sn_1",
        "username": "ada",
        "problem_id": 7,
        "language": 2,
        "status": 1,
        "verdict": "WA",
        "score": 40,
        "exec_time_ms": 50,
        "memory_usage_kib": 9999,
        "submitted_at": "2040-01-01T12:00:00.000Z",
        "judged_at": "2040-01-01T12:00:00.000Z",
        "testdata_sha256": sha256,
        "waits_because": None,
        "tasks": [
            {
                "status": 0,
                "verdict": "AC",
                "score": 40,
                "exec_time_ms": 12,
                "memory_usage_kib": 3456,
                "cases": [answered_case(0, "AC", 12, 3456)],
            },
            {
                "status": 1,
                "verdict": "WA",
                "score": 0,
                "exec_time_ms": 50,
                "memory_usage_kib": 9999,
                "cases": [
                    answered_case(0, "AC", 50, 3456),
                    answered_case(1, "WA", 12, 9999, exit_code=3),
                ],
            },
        ],
    }
    assert (job["state"], job["attempts"], job["job_id"]) == ("done", 1, job_id)
    assert [entry["event"] for entry in job["history"]] == [
        "enqueue",
        "claim",
        "complete_begins",
        "complete_ends",
    ]
    for stream, text in (("stdout", b"out\n"), ("stderr", b"err\n")):
        output = service.call("GET", f"/submissions/sn_1/outputs/0/0/{stream}", key=key)
        assert output.data == text
        assert output.headers["Content-Disposition"].startswith("attachment")
        assert output.headers["X-Content-Type-Options"] == "nosniff"
    assert service.call("GET", "/submissions/sn_1/outputs/2/0/stdout").status_code == 404
    assert service.call("GET", "/submissions/sn_1/outputs/0/1/stdout").status_code == 404
    code = service.call("GET", "/submissions/sn_1/code", key=key)
    assert code.headers["Content-Type"] == "application/zip"
    assert service.counters("ada") == (1, 0, [])
    assert service.ok("GET", "/homeworks/hw", key=key)["student_status"] == {
        "ada": {"7": {"score": 40, "rawScore": 40, "problemStatus": 1, "submissionIds": ["sn_1"]}}
    }
    assert service.call("GET", code_url, key=None).status_code == 403
    assert service.call("GET", testdata_url, key=None).status_code == 403


def answered_case(
    status: int, verdict: str, ms: int, kib: int, *, exit_code: int = 0
) -> dict[str, Any]:
    return {
        "status": status,
        "verdict": verdict,
        "exit_code": exit_code,
        "exec_time_ms": ms,
        "memory_usage_kib": kib,
        "output_truncated": False,
        "runs": 1,
    }


def test_a_case_says_of_how_many_runs_it_is(course: Service) -> None:
    course.submit("ada", 1, "s1")
    runner = course.runner()
    payload = course.claim(runner)
    assert payload is not None
    path = f"/runners/{runner.runner_id}/jobs/{payload['job_id']}/complete"
    for runs, status in ((0, 400), (101, 400), ("2", 400), (3, 204)):
        body = {"tasks": [[case_body("TLE", runs=runs)]]}
        answer = course.call("PUT", path, key=runner.token, json=body, may_fail=True)
        assert answer.status_code == status, runs
    (case,) = course.ok("GET", "/submissions/s1")["tasks"][0]["cases"]
    assert (case["verdict"], case["runs"]) == ("TLE", 3)


def test_a_heartbeat_replaces_the_languages_that_a_runner_takes(course: Service) -> None:
    runner = course.runner("one", languages=[0])
    course.submit("ada", 1, "s1")  # Python
    assert course.claim(runner) is None
    beat = f"/runners/{runner.runner_id}/heartbeat"

    def tell(languages: Any) -> int:
        body = {"active_job_ids": [], "languages": languages}
        return course.call("POST", beat, key=runner.token, json=body, may_fail=True).status_code

    assert tell([2, 0, 2]) == 204
    assert course.ok("GET", "/runners")[0]["languages"] == [0, 2]
    assert tell(["2"]) == 400
    assert tell([7]) == 400
    assert tell(None) == 204
    assert course.claim(runner) is not None
    assert tell([]) == 204
    course.submit("ada", 1, "s2")
    assert course.claim(runner) is None


def test_a_job_given_back_is_handed_out_again(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    first, second = service.runner("first"), service.runner("second")
    job_id = service.claim(first)["job_id"]
    path = first.path(f"jobs/{job_id}/abort")
    for _ in range(2):
        answer = service.call("PUT", path, key=first.token, json={"reason": "drain"})
        assert answer.status_code == 202
    payload = service.claim(second)
    assert (payload["job_id"], payload["attempt"]) == (job_id, 1)
    late = service.call("PUT", path, key=first.token, json={"reason": "drain"})
    assert (late.status_code, late.get_json(force=True)["reason"]) == (409, "lease_lost")


def test_a_safe_method_leases_nothing(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    for method in ("HEAD", "OPTIONS"):
        answer = service.call(method, runner.path("next-job"), key=runner.token)
        assert answer.status_code < 300
        assert service.view_job("sn_1")["state"] == "pending"
    assert service.claim(runner) is not None


def test_a_rejudge_over_http(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    service.submit("ada", 1, "sn_1")
    first_job = service.view_job("sn_1")["job_id"]
    answer = service.call("POST", "/submissions/sn_1/rejudge")
    assert (answer.status_code, answer.get_json()) == (202, {"job_id": first_job})
    service.judge(runner, "sn_1", "AC")
    second_job = service.ok("POST", "/submissions/sn_1/rejudge")["job_id"]
    assert second_job != first_job
    assert service.view("sn_1")["verdict"] == "PENDING"
    assert service.counters("ada") == (1, 1, [1])
    service.judge(runner, "sn_1", "WA")
    assert service.view("sn_1")["verdict"] == "WA"
    assert service.counters("ada") == (1, 0, [])


def test_runners_are_listed_and_revoked(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    runner = service.runner("one", languages=[2, 2, 0])
    job_id = service.claim(runner)["job_id"]
    assert service.ok("GET", "/runners") == [
        {
            "runner_id": runner.runner_id,
            "name": "one",
            "last_seen": "2040-01-01T12:00:00.000Z",
            "alive": True,
            "active_jobs": [job_id],
            "registered_at": "2040-01-01T12:00:00.000Z",
            "languages": [0, 2],
            "holds": [
                {
                    "job_id": job_id,
                    "submission_id": "sn_1",
                    "since": "2040-01-01T12:00:00.000Z",
                }
            ],
            "done": 0,
            "judge_errors": 0,
            "aborts": 0,
            "resting": False,
            "drain": None,
            "set_aside": None,
            "checks": {"on_probation": False, "unproven": [], "share": 0, "failed": None},
        }
    ]
    service.clock.advance(3600)
    assert not service.ok("GET", "/runners")[0]["alive"]
    assert service.call("DELETE", f"/runners/{runner.runner_id}").status_code == 204
    assert service.ok("GET", "/runners") == []
    assert service.call("DELETE", f"/runners/{runner.runner_id}").status_code == 404
    refused = service.call("GET", runner.path("next-job"), key=runner.token)
    assert refused.status_code == 401


def test_a_runner_is_told_how_to_behave(service: Service) -> None:
    body = {"registration_token": REGISTRATION_TOKEN, "name": "r", "from_the_future": 1}
    answer = service.call("POST", "/runners/register", key=None, json=body)
    assert answer.status_code == 201
    registered = answer.get_json()
    assert registered["runner_id"].startswith("rn_")
    assert registered["token"].startswith("rk_")
    assert len(registered["token"]) >= 3 + 43
    assert registered["config"] == {
        "heartbeat_interval_sec": 15,
        "poll_interval_sec": 3,
        "max_concurrent_jobs": RELAXED["max_concurrent_jobs"],
    }
    assert type(registered["config"]["heartbeat_interval_sec"]) is int
    assert registered["token"] not in str(list(service.database["runners"].find()))


def test_the_queue_is_seen_paused_and_resumed(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    service.submit("ada", 1, "sn_1")
    service.clock.advance(90)
    assert service.ok("GET", "/queue") == {
        "depth": [{"state": "pending", "priority": 0, "count": 1}],
        "oldest_pending_age_s": 90.0,
        "longest_lease_s": None,
        "held_problems": [],
        "landed_per_min": {"last_1_min": 0.0, "last_5_min": 0.0, "last_15_min": 0.0},
        "unreadable": 0,
        "paused": None,
    }
    assert service.call("POST", "/queue/pause", json={"why": "cleaning"}).status_code == 204
    assert service.claim(runner) is None
    assert service.ok("GET", "/queue")["paused"] == {
        "by": "admin",
        "why": "cleaning",
        "at": "2040-01-01T12:01:30.000Z",
    }
    assert service.ok("GET", "/submissions/sn_1")["waits_because"] == "The queue is paused."
    assert service.call("POST", "/queue/resume").status_code == 204
    assert service.claim(runner) is not None


def test_a_problem_that_is_not_ready_makes_its_jobs_wait(service: Service) -> None:
    service.user("ada")
    runner = service.runner()
    service.ok("PUT", "/problems/1", json={"name": "p", "tasks": task_bodies((100, 2))})
    service.submit("ada", 1, "sn_1")
    service.problem(2)
    service.submit("ada", 2, "sn_2")
    assert service.claim(runner)["submission_id"] == "sn_2"
    assert service.claim(runner) is None
    assert "do not agree yet" in service.ok("GET", "/submissions/sn_1")["waits_because"]
    assert put_testdata(service, 1, packed_testdata(2)).status_code == 201
    assert service.claim(runner)["submission_id"] == "sn_1"
    service.ok("PUT", "/problems/1", json={"name": "p", "tasks": task_bodies((100, 3))})
    assert service.ok("GET", "/problems/1")["ready"] is False


def test_replaced_test_data_stays_for_those_who_were_given_it(service: Service) -> None:
    service.user("ada")
    old_sha256 = service.problem(1)
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    payload = service.claim(runner)
    new_sha256 = service.problem(1, (50, 1), (50, 1), text="2\n")
    assert service.call("GET", payload["testdata_url"], key=None).data == packed_testdata(1)
    assert service.complete(runner, payload["job_id"], "AC").status_code == 204
    view = service.ok("GET", "/submissions/sn_1")
    assert (view["verdict"], view["score"], view["testdata_sha256"]) == ("AC", 100, old_sha256)
    service.ok("POST", "/submissions/sn_1/rejudge")
    payload = service.claim(runner)
    assert (payload["testdata_sha256"], len(payload["tasks"])) == (new_sha256, 2)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (packed_testdata(1), "missing file '0001.in'"),
        (packed_testdata(3), "surplus file '0002.in'"),
        (packed_testdata(2, 1), "surplus file '0100.in'"),
        (b"no zip", "not a readable zip"),
        (b"", "not a readable zip"),
    ],
)
def test_test_data_that_does_not_match_changes_nothing(
    service: Service, packed: bytes, why: str
) -> None:
    sha256 = service.problem(1, (100, 2))
    answer = put_testdata(service, 1, packed)
    assert answer.status_code == 400
    problem = answer.get_json(force=True)
    assert problem["reason"] == "invalid_testdata"
    assert why in problem["detail"]
    kept = service.ok("GET", "/problems/1")
    assert (kept["ready"], kept["testdata_sha256"]) == (True, sha256)


def test_lists_are_paged_newest_first_without_gaps(service: Service) -> None:
    service.user("ada")
    service.user("bob")
    service.problem(1)
    service.problem(2)
    for number in range(9):
        service.submit("ada", 1 + number % 2, f"a{number}")
        service.submit("bob", 1, f"b{number}")
        if number % 3 == 2:
            service.clock.advance(0.001)
    service.judge(service.runner(), "a0", "AC")

    def listed(query: str, key: str = ADMIN_KEY) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            page = service.ok("GET", f"/submissions?{query}{cursor}", key=key)
            found += [entry["submission_id"] for entry in page["submissions"]]
            if page["next_cursor"] is None:
                return found
            assert len(page["submissions"]) == 4
            cursor = f"&cursor={page['next_cursor']}"

    everything = [f"{who}{number}" for who in "ab" for number in range(9)]
    in_order = sorted(everything, key=lambda name: (int(name[1]) // 3, name), reverse=True)
    assert listed("limit=4") == in_order
    assert listed("limit=4&username=ada") == [name for name in in_order if name[0] == "a"]
    assert listed("limit=4", key=service.keys["ada"]) == listed("limit=4&username=ada")
    assert listed("limit=4&problem_id=2") == [
        name for name in in_order if name[0] == "a" and int(name[1]) % 2
    ]
    assert listed("limit=4&verdict=AC") == ["a0"]
    assert len(listed("limit=4&verdict=PENDING")) == 17
    entry = service.ok("GET", "/submissions?verdict=AC")["submissions"][0]
    assert "tasks" not in entry
    assert entry["score"] == 100


def test_for_operators(service: Service) -> None:
    assert service.ok("GET", "/healthz", key=None) == {"status": "ok"}
    assert service.ok("GET", "/readyz", key=None) == {"status": "ok"}
    metrics = service.call("GET", "/metrics", key=None)
    assert metrics.headers["Content-Type"].startswith("text/plain")
    assert b"python_info" in metrics.data


def test_an_admin_submits_for_others_and_early(service: Service) -> None:
    key = service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"], start=EPOCH.replace(year=2041), end=EPOCH.replace(2042))
    refused = service.submit_over_http(key, problem_id=1, language=2)
    assert (refused.status_code, refused.get_json(force=True)["reason"]) == (
        403,
        "homework_not_started",
    )
    answer = service.submit_over_http(ADMIN_KEY, problem_id=1, language=2, username="ada")
    assert answer.status_code == 201
    submission_id = answer.get_json()["submission_id"]
    assert submission_id.startswith("sn_")
    assert service.view(submission_id)["username"] == "ada"
    service.judge(service.runner(), submission_id, "AC")
    assert service.standing("hw", "ada", 1)["submissionIds"] == []
