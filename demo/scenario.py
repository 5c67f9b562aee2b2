"""The scenario of the demo, step by step, over HTTP.

Guarantees: no step depends on how fast anything is. The deadline is moved to just after the last
program that was on time, once all of those are judged; the runner to be killed is stopped first
and killed only after a second look has found it still holding the job.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from demo import course
from demo.check import check_counters, check_reclaim, check_standings, check_submission
from demo.course import KILLED, PROBLEMS, STUDENTS, SUBMISSIONS, Submission
from demo.processes import Child, DemoFailed, Processes
from demo.report import Report
from demo.service import Json, Service
from mongo.problem_package import read_package

LOOK_EVERY_S = 0.2
START_WAIT_S = 60.0
VERDICTS_WAIT_S = 150.0
PENDING = "PENDING"


RUNNERS = ("demo-runner-1", "demo-runner-2")


@dataclass(kw_only=True)
class Scenario:
    """One run. `start_runner` starts a runner that registers under the name given to it."""

    service: Service
    processes: Processes
    report: Report
    start_runner: Callable[[str], Child]
    runners: dict[str, Child] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    judged: dict[str, Json] = field(default_factory=dict)
    runner_names: dict[str, str] = field(default_factory=dict)
    killed_runner_id: str | None = None

    def run(self) -> list[str]:
        """Play the scenario and return every difference from the course; none is success.

        Raises `DemoFailed` where it cannot be played to its end.
        """
        self._wait_for_service()
        self._import_problems()
        self._create_course()
        self._wait_for_runners()
        on_time = [row for row in SUBMISSIONS if not row.late]
        late = [row for row in SUBMISSIONS if row.late]
        self.report.step(f"{len(on_time)} programs are handed in on time")
        self._submit(on_time)
        self._watch(on_time)
        self._close_homework(on_time)
        self.report.step(f"{len(late)} programs are handed in late")
        self._submit(late)
        self._watch(late)
        return self._results()

    def _wait_for_service(self) -> None:
        self.report.step("the service starts: embedded MongoDB, API, two runners")
        self._wait("the service to be ready", self.service.ready)
        # Not earlier: a runner that finds no service to register with may give up.
        self.runners = {name: self.start_runner(name) for name in RUNNERS}

    def _import_problems(self) -> None:
        self.report.step("three problem packages are imported")
        for problem in PROBLEMS:
            package = read_package(
                problem.path, allow_default_comparison=problem.allow_default_comparison
            )
            self.service.put_problem(problem.problem_id, package)
            cases = sum(task.case_count for task in package.tasks)
            self.report.note(
                f"{problem.problem_id} {package.name}: tasks of"
                f" {' + '.join(str(task.task_score) for task in package.tasks)} points,"
                f" {cases} cases"
            )

    def _create_course(self) -> None:
        self.report.step("a homework with a deadline and a late penalty, for five students")
        self.keys = {name: self.service.create_user(name) for name in STUDENTS}
        self._put_homework(end=datetime.now(UTC) + timedelta(days=7))
        self.report.note(f"penalty: {course.PENALTY}")

    def _put_homework(self, end: datetime) -> None:
        self.service.put_homework(
            course.HOMEWORK_ID,
            name=course.HOMEWORK_NAME,
            start=end - timedelta(days=30),
            end=end,
            penalty=course.PENALTY,
            problem_ids=[problem.problem_id for problem in PROBLEMS],
            students=STUDENTS,
        )

    def _wait_for_runners(self) -> None:
        def registered() -> bool:
            self.runner_names = self.service.runner_names()
            return set(self.runner_names.values()) >= self.runners.keys()

        self._wait("both runners to register", registered)

    def _submit(self, rows: Sequence[Submission]) -> None:
        for row in rows:
            self.service.submit(
                row.submission_id,
                key=self.keys[row.student],
                problem_id=row.problem.problem_id,
                language=row.language,
                program=row.path,
            )

    def _watch(self, rows: Sequence[Submission]) -> None:
        """Show each verdict as it arrives, and kill a runner on the way."""
        by_id = {row.submission_id: row for row in rows}
        with self.report.verdicts(rows):

            def all_judged() -> bool:
                if KILLED.submission_id in by_id and self.killed_runner_id is None:
                    self._try_to_kill()
                for item in self.service.submissions(limit=len(SUBMISSIONS)):
                    submission_id = item["submission_id"]
                    if (
                        submission_id in by_id
                        and submission_id not in self.judged
                        and item["verdict"] != PENDING
                    ):
                        self._arrived(by_id[submission_id])
                return by_id.keys() <= self.judged.keys()

            self._wait("all verdicts", all_judged, wait_s=VERDICTS_WAIT_S)

    def _arrived(self, row: Submission) -> None:
        actual = self.service.submission(row.submission_id)
        job = actual.get("job") or {}
        if job.get("state") != "done":
            return  # the verdict is there, the counters that follow from it are not yet
        self.judged[row.submission_id] = actual
        runner_id = str(job.get("leased_by"))
        self.report.verdict(row, actual, self.runner_names.get(runner_id, runner_id))

    def _try_to_kill(self) -> None:
        """Kill the runner that holds the job of `KILLED`, if one does."""
        runner_id = self._holder()
        name = self.runner_names.get(runner_id or "")
        if runner_id is None or name is None:
            return
        child = self.runners[name]
        # A stopped runner can report nothing, so what the second look finds stays true.
        os.kill(child.process.pid, signal.SIGSTOP)
        if self._holder() != runner_id:
            os.kill(child.process.pid, signal.SIGCONT)
            return
        child.process.kill()
        child.process.wait()
        self.killed_runner_id = runner_id
        self.report.note(f"{name} holds the job of {KILLED.submission_id}: killed with SIGKILL")

    def _holder(self) -> str | None:
        job = self.service.submission(KILLED.submission_id).get("job") or {}
        return str(job["leased_by"]) if job.get("state") == "leased" else None

    def _close_homework(self, on_time: Sequence[Submission]) -> None:
        times = [
            datetime.fromisoformat(self.judged[row.submission_id]["submitted_at"])
            for row in on_time
        ]
        end = max(times)
        self.report.step(f"the teacher moves the deadline to {end.isoformat()}: it has passed")
        self._put_homework(end)

    def _results(self) -> list[str]:
        self.report.step("what has come of it")
        # Read anew: verdicts must not have changed since they arrived.
        submissions = {
            row.submission_id: self.service.submission(row.submission_id) for row in SUBMISSIONS
        }
        homework = self.service.homework(course.HOMEWORK_ID)
        users = {name: self.service.user(name) for name in STUDENTS}
        reclaimed = submissions[KILLED.submission_id]
        self.report.history(reclaimed.get("job") or {}, self.runner_names)
        self.report.standings(homework, users)

        differences: list[str] = []
        for row in SUBMISSIONS:
            differences += check_submission(row, submissions[row.submission_id])
        for name in STUDENTS:
            differences += check_counters(name, course.COUNTERS[name], users[name])
        differences += check_standings(course.STANDINGS, homework)
        if self.killed_runner_id is None:
            differences.append("no runner was killed: none was seen holding the job")
        else:
            differences += check_reclaim(reclaimed, self.killed_runner_id)
        return differences

    def _wait(self, what: str, done: Callable[[], bool], *, wait_s: float = START_WAIT_S) -> None:
        deadline = time.monotonic() + wait_s
        while not done():
            killed = self.runner_names.get(self.killed_runner_id or "", "")
            self.processes.check_alive(but=[killed])
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {wait_s:g} s for {what}, in vain")
            time.sleep(LOOK_EVERY_S)
