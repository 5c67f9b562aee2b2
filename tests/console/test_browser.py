"""The console in a real browser, on the real service."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.factories import CODE, case_body
from tests.live import LiveService

sync_api = pytest.importorskip("playwright.sync_api", reason="NOT TESTED, no playwright here")
expect = sync_api.expect

PATIENCE_MS = 30_000
_numbers = itertools.count()

RUN = "document.documentElement.dataset.ran = 1"
HOSTILE = (
    f"<script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    f"'><svg onload='{RUN}'>",
    f"javascript:{RUN}",
    f"</pre></bdi></td></table><script>{RUN}</script>",
)
HOSTILE_NAMES = tuple(text[:90].replace("/", "\u2215") for text in HOSTILE)
PAGES = ("", "/queue", "/runners", "/submissions", "/judge-errors", "/homeworks", "/check")


@dataclass
class Judging:
    """The live service's other side: students and a runner, over HTTP."""

    service: LiveService
    admin: httpx.Client
    runner: dict[str, str] = field(default_factory=dict)

    def register(self, name: str) -> dict[str, str]:
        token = self.service.environment["RUNNER_REGISTRATION_TOKEN"]
        body = {"registration_token": token, "name": name}
        answer = self.admin.post("/runners/register", json=body)
        self.runner = answer.raise_for_status().json()
        return self.runner

    def submit(self, username: str = "ada", problem_id: int = 1) -> str:
        submission_id = f"console_{next(_numbers)}"
        form = {"problem_id": problem_id, "language": 2, "username": username}
        self.admin.post(
            "/submissions",
            data={**form, "submission_id": submission_id},
            files={"code": ("main.py", CODE)},
        ).raise_for_status()
        return submission_id

    def put_homework(self, homework_id: str, name: str, students: Sequence[str]) -> None:
        now = datetime.now(UTC)
        body = {
            "name": name,
            "start": now.isoformat(timespec="seconds"),
            "end": (now + timedelta(days=1)).isoformat(timespec="seconds"),
            "problem_ids": [1],
            "students": list(students),
        }
        self.admin.put(f"/homeworks/{homework_id}", json=body).raise_for_status()

    def as_runner(self, method: str, path: str, **sent: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.runner['token']}"}
        path = f"/runners/{self.runner['runner_id']}/{path}"
        return self.admin.request(method, path, headers=headers, **sent)

    def judge(self, **case: Any) -> str:
        """Claim the next job and report one case; return its submission."""
        payload = self.as_runner("GET", "next-job").raise_for_status().json()
        self.complete(payload["job_id"], **case)
        return str(payload["submission_id"])

    def complete(self, job_id: str, **case: Any) -> None:
        body = {"tasks": [[case_body(**case)]]}
        assert self.as_runner("PUT", f"jobs/{job_id}/complete", json=body).status_code == 204

    def drain(self) -> None:
        """Judge whatever still waits, so that the next test begins with an empty queue."""
        self.admin.post("/queue/resume").raise_for_status()
        self.register("desk that drains")
        while (answer := self.as_runner("GET", "next-job")).status_code == 200:
            self.complete(answer.json()["job_id"])


@pytest.fixture
def judging(shared_service: LiveService) -> Iterator[Judging]:
    """A fresh runner on the shared service; nothing waits when the test ends."""
    with shared_service.admin() as admin:
        made = Judging(shared_service, admin)
        made.register(f"desk {next(_numbers)}")
        yield made
        made.drain()


@contextmanager
def _visit(chromium: Any, service: LiveService, **wishes: Any) -> Iterator[Any]:
    """A page of a fresh browser profile, signed in, that notes what it should not meet."""
    context = chromium.new_context(**wishes)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    met: list[str] = []
    page.on("dialog", lambda dialog: (met.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: met.append(str(error)))
    page.goto(f"{service.url}/console")
    page.get_by_label("Admin key").fill(service.environment["ADMIN_API_KEY"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/console")
    yield page
    context.close()
    assert met == []


@pytest.fixture
def visit(chromium: Any, shared_service: LiveService) -> Callable[..., Any]:
    """Opens a page for somebody who has signed in."""
    return lambda **wishes: _visit(chromium, shared_service, **wishes)


def go(page: Any, path: str) -> None:
    origin = page.evaluate("location.origin")
    page.goto(f"{origin}/console{path}")


def test_a_submission_goes_from_pending_to_its_verdict_without_a_reload(
    judging: Judging, visit: Callable[..., Any]
) -> None:
    submission_id = judging.submit()
    with visit() as page:
        go(page, f"/submissions/{submission_id}")
        result = page.locator("#result")
        expect(result).to_contain_text("pending")
        page.evaluate("window.sameDocument = true")
        assert judging.judge(stdout="1\n") == submission_id
        expect(result).to_contain_text("AC", timeout=PATIENCE_MS)
        expect(page.locator("#history")).to_contain_text("Landed", timeout=PATIENCE_MS)
        assert page.evaluate("window.sameDocument") is True


def test_a_submission_is_rejudged(judging: Judging, visit: Callable[..., Any]) -> None:
    submission_id = judging.submit()
    judging.judge()
    with visit() as page:
        go(page, f"/submissions/{submission_id}")
        page.get_by_role("button", name="Rejudge").click()
        expect(page.locator("main")).to_contain_text("A fresh judging is on its way.")
        expect(page.locator("#result")).to_contain_text("pending")
        expect(page).not_to_have_url(re.compile("did="))
        judging.judge(status="WA")
        expect(page.locator("#result")).to_contain_text("WA", timeout=PATIENCE_MS)


def test_from_the_queue_one_is_moved_up_and_its_rejudge_is_taken_back(
    judging: Judging, visit: Callable[..., Any]
) -> None:
    first, moved = judging.submit(), judging.submit()
    judging.judge()
    judging.judge()
    for submission_id in (first, moved):
        judging.admin.post(f"/submissions/{submission_id}/rejudge").raise_for_status()
    with visit() as page:
        go(page, "/queue")
        page.get_by_role("button", name=f"To the front with {moved}").click()
        expect(page.locator("main")).to_contain_text("It is the next to be judged.")
        expect(page.locator("#line tbody tr").first).to_contain_text(moved)
        page.get_by_role("link", name=moved).click()
        page.get_by_role("button", name="Take the rejudge back").click()
        expect(page.locator("#result")).to_contain_text("AC")
    assert judging.judge() == first


def test_a_runner_is_revoked(judging: Judging, visit: Callable[..., Any]) -> None:
    name = f"desk to revoke {next(_numbers)}"
    revoked = judging.register(name)
    with visit() as page:
        go(page, "/runners")
        row = page.get_by_role("row").filter(has_text=revoked["runner_id"])
        row.get_by_text("Revoke…").click()
        with page.expect_response("**/console/runners"):
            pass  # the page refreshes itself; what was opened stays open
        row.get_by_role("button", name=f"Revoke {name}").click()
        expect(page.locator("main")).to_contain_text("The runner is revoked.")
        expect(page.locator("main")).not_to_contain_text(revoked["runner_id"])
    assert judging.as_runner("GET", "next-job").status_code == 401


def test_a_check_runs_beside_it_and_says_what_it_found(
    judging: Judging, visit: Callable[..., Any]
) -> None:
    judging.submit()
    judging.judge()
    with visit() as page:
        go(page, "/check")
        page.get_by_role("button", name="Check now").click()
        expect(page.locator("main")).to_contain_text("The check has begun.")
        # The server's own thread does it, and the page refreshes itself.
        expect(page.locator("#last")).to_contain_text("amiss", timeout=PATIENCE_MS)
        expect(page.locator("#last")).to_contain_text("jobs")


def test_a_pause_shows_by_itself_and_is_ended_from_any_page(
    judging: Judging, visit: Callable[..., Any]
) -> None:
    with visit() as page:
        go(page, "/homeworks")  # the slowest to refresh itself
        go(page, "/queue")
        judging.admin.post("/queue/pause", json={"why": "new <i>data</i>"}).raise_for_status()
        expect(page.locator("#pause")).to_contain_text("new <i>data</i>", timeout=PATIENCE_MS)
        page.get_by_role("button", name="Resume").click()
        expect(page.locator("main")).to_contain_text("The queue hands out jobs again.")
    assert judging.admin.get("/queue").json()["paused"] is None


def test_hostile_names_and_output_do_not_run(judging: Judging, visit: Callable[..., Any]) -> None:
    """With the policy against inline script switched off: escaping alone must hold."""
    text = "\n".join(HOSTILE)
    judged = []
    for name in HOSTILE_NAMES:
        judging.admin.put("/users/" + quote(name), json={}).raise_for_status()
    for number, name in enumerate(HOSTILE_NAMES):
        judging.put_homework(f"hostile_{number}", name, HOSTILE_NAMES)
        judging.register(name)
        judged.append(judging.submit(name))
        judging.judge(status="CE", stdout=text, stderr=text)
    waiting = [judging.submit(name) for name in HOSTILE_NAMES]
    judging.admin.post("/queue/pause", json={"why": HOSTILE_NAMES[0]})
    with visit(bypass_csp=True) as page:
        for path in (
            *PAGES,
            f"/submissions/{judged[0]}",
            f"/submissions/{waiting[0]}",
            f"/submissions/{judged[0]}/cases/0/0",
            "/homeworks/hostile_0",
        ):
            go(page, path)
            # The refreshed parts as well.
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.dataset.ran") is None, path
            assert page.locator("main a[href^='javascript:']").count() == 0
        go(page, f"/submissions/{judged[0]}/cases/0/0")
        assert page.locator("pre").first.inner_text() == text
        for path in ("/runners", "/submissions", "/homeworks", "/homeworks/hostile_0"):
            go(page, path)
            for name in HOSTILE_NAMES:
                expect(page.locator("main")).to_contain_text(name)


def test_the_policy_stops_what_escaping_would_have_missed(
    judging: Judging, visit: Callable[..., Any]
) -> None:
    with visit() as page:
        page.evaluate(
            f"""() => {{
                const script = document.createElement("script");
                script.textContent = {RUN!r};
                document.body.append(script);
                document.body.insertAdjacentHTML("beforeend", '<img src=data: onerror="{RUN}">');
            }}"""
        )
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.dataset.ran") is None


def test_a_page_says_when_it_is_not_up_to_date(visit: Callable[..., Any]) -> None:
    with visit() as page:
        stale = page.locator("#stale")
        expect(stale).to_be_hidden()
        page.context.set_offline(True)
        expect(stale).to_be_visible(timeout=PATIENCE_MS)
        page.context.set_offline(False)
        expect(stale).to_be_hidden(timeout=PATIENCE_MS)


def test_a_session_that_is_over_leads_to_the_sign_in(visit: Callable[..., Any]) -> None:
    with visit() as page:
        go(page, "/runners")
        page.context.clear_cookies()
        page.wait_for_url("**/sign-in?next=**")
        expect(page.get_by_label("Admin key")).to_be_visible()


def test_signing_out_ends_the_session(visit: Callable[..., Any]) -> None:
    with visit() as page:
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/sign-in")
        go(page, "/queue")
        expect(page.get_by_label("Admin key")).to_be_visible()


def test_the_keyboards_place_survives_a_refresh(
    judging: Judging, visit: Callable[..., Any]
) -> None:
    submission_id = judging.submit()
    with visit() as page:
        link = page.locator("#latest").get_by_role("link", name=submission_id)
        link.focus()
        judging.judge()  # changes the row
        row = page.locator("#latest").get_by_role("row").filter(has_text=submission_id)
        expect(row).to_contain_text("AC", timeout=PATIENCE_MS)
        expect(link).to_be_focused()


def test_it_works_without_script(judging: Judging, visit: Callable[..., Any]) -> None:
    submission_id = judging.submit()
    with visit(java_script_enabled=False) as page:
        page.goto(f"{judging.service.url}/console/submissions/{submission_id}")
        expect(page.locator("meta[http-equiv=refresh]")).to_have_attribute("content", "30")
        page.get_by_role("button", name="Rejudge").click()
        expect(page.locator("main")).to_contain_text("A fresh judging is on its way.")


@pytest.mark.parametrize(("width", "height"), [(360, 740), (1920, 1080)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_a_beamer(
    judging: Judging, visit: Callable[..., Any], width: int, height: int, scheme: str
) -> None:
    submission_id = judging.submit("ada" if width > 1000 else "bob")
    judging.judge(stdout="x" * 500, memoryUsage=12_345_678, execTime=123_456)
    size = {"width": width, "height": height}
    with visit(viewport=size, color_scheme=scheme) as page:
        for path in (
            *PAGES,
            f"/submissions/{submission_id}",
            f"/submissions/{submission_id}/cases/0/0",
            "/nowhere",
        ):
            go(page, path)
            beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert beyond <= 0, path
            assert contrast(page, "body") >= 7, path
            for part in (".quiet", ".verdict", "a[href]"):
                if page.locator(part).count():
                    assert contrast(page, part) >= 4.5, (path, part)


def contrast(page: Any, selector: str) -> float:
    """The least contrast (WCAG) of the text of the elements that `selector` finds."""
    found: float = page.evaluate(
        """(selector) => {
            const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b]
                .map((v) => v / 255)
                .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const behind = (element) => {
                for (let one = element; one; one = one.parentElement) {
                    const colour = numbers(getComputedStyle(one).backgroundColor);
                    if (colour.length === 3 || colour[3] === 1) return colour;
                }
                return [255, 255, 255];
            };
            return Math.min(...[...document.querySelectorAll(selector)].map((element) => {
                const ink = light(numbers(getComputedStyle(element).color));
                const paper = light(behind(element));
                return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
            }));
        }""",
        selector,
    )
    return found
