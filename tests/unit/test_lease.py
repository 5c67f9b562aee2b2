"""Lease arithmetic: pure, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.lease import LeaseRules, deadline_passed
from dispatch.retry import LeaseEnd, table

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
MS = timedelta(milliseconds=1)
RULES = LeaseRules()
moments = st.integers(0, 10**12).map(lambda elapsed_ms: NOW + elapsed_ms * MS)


def test_the_numbers_of_the_protocol() -> None:
    assert RULES.lease_deadline(NOW) == NOW + timedelta(seconds=30)
    assert RULES.landing_deadline(NOW) == NOW + timedelta(seconds=10)
    assert RULES.max_attempts == 3


@pytest.mark.parametrize(
    ("deadline", "passed"),
    [(None, True), (NOW - MS, True), (NOW, True), (NOW + MS, False)],
    ids=["absent", "before", "now", "after"],
)
def test_i2_a_deadline_passes_at_its_moment(deadline: datetime | None, passed: bool) -> None:
    assert deadline_passed(deadline, NOW) is passed


@given(moments)
def test_i2_a_fresh_lease_is_not_over(now: datetime) -> None:
    assert not deadline_passed(RULES.lease_deadline(now), now)
    assert not deadline_passed(RULES.landing_deadline(now), now)
    assert deadline_passed(RULES.lease_deadline(now), RULES.lease_deadline(now))


@given(moments)
def test_a_landing_is_given_up_before_its_lease(now: datetime) -> None:
    # The owner's resend is to find the landing open, before anyone reclaims the job.
    assert RULES.landing_deadline(now) < RULES.lease_deadline(now)


@given(moments)
def test_no_preference_keeps_an_orphan_waiting_for_a_second(now: datetime) -> None:
    deadline = RULES.lease_deadline(now)
    assert (
        deadline
        < table(RULES)[LeaseEnd.LOST].others_first_until(deadline)
        < deadline + timedelta(seconds=1)
    )
    assert now < table(RULES)[LeaseEnd.DRAIN].others_first_until(now) < RULES.lease_deadline(now)


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        RULES.lease_ttl_s = 1  # type: ignore[misc]
