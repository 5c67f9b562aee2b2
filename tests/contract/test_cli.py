"""Flask's command line: what it does, what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.factories import Service

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "examples" / "problems"


@pytest.fixture
def run(service: Service) -> Any:
    """Run a command; return its result. Exceptions other than an exit are the test's."""
    runner = service.app.test_cli_runner()

    def run(*arguments: str, exit_code: int = 0) -> Result:
        result: Result = runner.invoke(args=list(arguments), catch_exceptions=False)
        assert result.exit_code == exit_code, result.output
        return result

    return run


# -- import-problem ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hello", "oddecho"])
def test_a_package_is_imported_and_can_be_judged(service: Service, run: Any, name: str) -> None:
    first = run("import-problem", str(PACKAGES / name), "--id", "7").output
    assert first.startswith("problem 7: ")
    problem = service.ok("GET", "/problems/7")
    assert problem["ready"]
    assert sum(task["task_score"] for task in problem["tasks"]) == 100
    assert problem["allowed_languages"] == [0, 1, 2]
    assert problem["testdata_sha256"][:12] in first
    assert run("import-problem", str(PACKAGES / name), "--id", "7").output == first
    service.user("ada")
    service.submit("ada", 7, "sn_1")
    tasks = [" ".join(["AC"] * task["case_count"]) for task in problem["tasks"]]
    service.judge(service.runner(), "sn_1", *tasks)
    assert service.view("sn_1")["score"] == 100


def test_a_validator_of_its_own_needs_a_word(service: Service, run: Any) -> None:
    path = str(PACKAGES / "different")
    refused = run("import-problem", path, "--id", "8", exit_code=2)
    assert "validator" in refused.output
    assert service.call("GET", "/problems/8").status_code == 404
    run("import-problem", path, "--id", "8", "--allow-default-comparison")
    assert service.ok("GET", "/problems/8")["ready"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("import-problem", "/nowhere", "--id", "1"),
        ("import-problem", str(PACKAGES / "hello")),
        ("import-problem", str(PACKAGES / "hello"), "--id", "-1"),
        ("import-problem", str(PACKAGES / "hello"), "--id", str(2**31)),
        ("import-problem", str(PACKAGES), "--id", "1"),
        ("import-problem", str(PACKAGES / "hello" / "problem.yaml"), "--id", "1"),
    ],
)
def test_wrong_use_of_import_is_2(service: Service, run: Any, arguments: tuple[str, ...]) -> None:
    run(*arguments, exit_code=2)
    assert service.database["problems"].count_documents({}) == 0


# -- keys ----------------------------------------------------------------------------------


def test_keys_are_made_and_work(service: Service, run: Any) -> None:
    admin = run("keys", "create", "--admin").output.strip()
    assert admin.startswith("ak_")
    assert service.call("GET", "/queue", key=admin).status_code == 200
    for name in ("ada", "名前", "a b", "[b]$x.y[/b]".replace("/", "")):
        key = run("keys", "create", "--user", name).output.strip()
        assert key.startswith("uk_")
        assert service.ok("GET", service.url("users", name), key=key)["username"] == name
    assert service.call("GET", "/queue", key=key).status_code == 403
    other = run("keys", "create", "--user", "ada").output.strip()
    assert other != key
    assert service.call("GET", "/users/ada", key=other).status_code == 200


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--admin", "--user", "ada"),
        ("--user", "a/b"),
        ("--user", ""),
        ("--user", "a\nb"),
        ("--user", ".."),
        ("--user", "x" * 101),
    ],
)
def test_wrong_use_of_keys_is_2(service: Service, run: Any, arguments: tuple[str, ...]) -> None:
    run("keys", "create", *arguments, exit_code=2)
    assert service.database["users"].count_documents({}) == 0
    assert service.database["api_keys"].count_documents({}) == 1


# -- rejudge, queue, runners ---------------------------------------------------------------


def test_rejudging(service: Service, run: Any) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    for name in ("sn_1", "sn_2"):
        service.submit("ada", 1, name)
        service.judge(runner, name, "AC")
    lines = run("rejudge", "sn_1", "sn_2").output.splitlines()
    assert lines == [f"{name}: {service.view_job(name)['job_id']}" for name in ("sn_1", "sn_2")]
    assert service.view("sn_1")["verdict"] == service.view("sn_2")["verdict"] == "PENDING"
    refused = run("rejudge", "sn_3", exit_code=3)
    assert "sn_3" in refused.output
    run("rejudge", exit_code=2)


def test_runners_are_shown_whatever_they_are_called(service: Service, run: Any) -> None:
    assert run("runners").output == "none\n"
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    odd = "[/x] [red]r"
    runner = service.runner(odd)
    job_id = service.claim(runner)["job_id"]
    [shown] = json.loads(run("runners", "--json").output)
    assert shown == {
        "runner_id": runner.runner_id,
        "name": odd,
        "alive": True,
        "state": "alive",
        "last_seen": "2040-01-01T12:00:00+00:00",
        "active_jobs": [job_id],
        "done": 0,
        "aborts": 0,
        "judge_errors": 0,
        "on_probation": False,
        "check_share": 0.0,
        "doubtful": None,
    }
    assert "[/x]" in run("runners").output


def test_a_runner_is_drained_reinstated_and_revoked(service: Service, run: Any) -> None:
    runner = service.runner()
    for verb, state in (("drain", "drains"), ("reinstate", "alive")):
        assert runner.runner_id in run("runners", verb, runner.runner_id).output
        [shown] = json.loads(run("runners", "--json").output)
        assert shown["state"] == state
    told = json.loads(run("runners", "revoke", runner.runner_id, "--json").output)
    assert told == {"did": "revoked", "runner_id": runner.runner_id}
    assert run("runners").output == "none\n"
    for verb in ("drain", "reinstate", "revoke"):
        refused = run("runners", verb, runner.runner_id, exit_code=3)
        assert "there is no runner" in refused.output


# -- recompute -----------------------------------------------------------------------------


def test_recompute_finds_nothing_wrong_then_what_is_then_mends_it(
    service: Service, run: Any
) -> None:
    for name in ("ada", "[/bob]".replace("/", "")):
        service.user(name)
    service.problem(1)
    service.homework("hw", [1], ["ada", "[bob]"])
    service.submit("ada", 1, "sn_1")
    service.land("sn_1", "AC")
    healthy = run("recompute", "--check").output
    assert "4 looked at, 0 differ" in healthy
    service.database["users"].update_one({"_id": "ada"}, {"$set": {"AC_submission": 7}})
    service.database["users"].update_one({"_id": "[bob]"}, {"$set": {"submission": 1}})
    service.database["student_status"].update_one(
        {"username": "ada"}, {"$set": {"problems.1.score": 3}}
    )
    found = run("recompute", "--check", exit_code=1).output
    assert "3 differ" in found
    assert "[bob]" in found
    assert "0 differ" not in run("recompute", "--check", "--user", "ada", exit_code=1).output
    assert "3 rebuilt" in run("recompute", "--repair").output
    assert "0 differ" in run("recompute", "--check").output
    assert service.counters("ada") == (1, 1, [1])
    assert service.standing("hw", "ada", 1)["score"] == 100


def test_wrong_use_of_recompute_is_2(run: Any) -> None:
    run("recompute", exit_code=2)
    run("recompute", "--nonsense", exit_code=2)


# -- starting ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment",
    [{"MONGODB_URI": "mongodb://h/db"}, {"PORT": "x"}, {"MONGODB_URI": "mongodb://u:p@h:x/"}],
)
def test_a_wrong_setting_is_one_line_and_2(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flask", "--app", f"{ROOT / 'app'}", "queue"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert next(iter(environment)) in done.stderr or "SECRET_KEY" in done.stderr
    assert done.stdout == ""
