"""Somebody who is signed in, and the browser for the tests that need a real one."""

import pytest

from tests.console.chromium import chromium
from tests.console.support import Operator
from tests.factories import Service

__all__ = ["chromium"]


@pytest.fixture
def operator(service: Service) -> Operator:
    """Signed in with the tests' admin key."""
    someone = Operator(service)
    assert someone.sign_in().status_code == 303
    return someone
