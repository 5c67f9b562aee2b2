"""What a process's claims know of one another."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dispatch import tried
from dispatch.records import Job
from dispatch.tried import Tried

AT = datetime(2030, 1, 1, tzinfo=UTC)


def job(job_id: str = "jb_1", *, fence: int = 1, state: str = "pending") -> Job:
    document: dict[str, Any] = {
        "_id": f"of {job_id}",
        "job_id": job_id,
        "state": state,
        "problem_id": 1,
        "language": 0,
        "queued_at": AT,
        "fence": fence,
    }
    return Job.from_document(document)


def test_a_job_is_gone_under_the_fence_that_it_was_seen_to_leave() -> None:
    known = Tried()
    assert not known.is_gone(job())
    known.gone(job())
    assert known.is_gone(job())
    assert not known.is_gone(job(fence=2))
    assert not known.is_gone(job("jb_2"))


def test_an_orphan_is_never_gone() -> None:
    """A renewed lease that runs out again has its fence still."""
    known = Tried()
    known.gone(job(state="leased"))
    assert not known.is_gone(job(state="leased"))


def test_it_is_forgotten_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failover may bring a job back into the line under its old fence."""
    known = Tried()
    known.gone(job())
    monkeypatch.setattr(tried, "GONE_FOR_S", 0.0)
    assert not known.is_gone(job())


def test_nothing_is_kept_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that lives for a term claims millions."""
    at_s = iter(range(100))
    monkeypatch.setattr(tried.time, "monotonic", lambda: float(next(at_s)))
    known = Tried()
    for name in ("jb_1", "jb_2", "jb_1", "jb_3", "jb_4"):
        known.gone(job(name))
    # Noted at 0, 1, 2, 3 and 4 s, the first of them again at 2 s, which is two seconds ago.
    assert [key[0] for key in known._gone] == ["jb_3", "jb_4"]


def test_one_claim_at_a_time_is_at_a_job() -> None:
    known = Tried()
    with known.trying(job()) as first, known.trying(job()) as second:
        assert (first, second) == (True, False)
        with known.trying(job("jb_2")) as other:
            assert other
    with known.trying(job()) as again:
        assert again


def test_the_second_to_come_does_not_end_the_first_ones_turn() -> None:
    known = Tried()
    with known.trying(job()):
        with known.trying(job()) as second:
            assert not second
        with known.trying(job()) as third:
            assert not third


def test_a_claim_that_fails_gives_the_job_free() -> None:
    known = Tried()
    with pytest.raises(OSError, match="cable"), known.trying(job()):
        raise OSError("cable")
    with known.trying(job()) as again:
        assert again
