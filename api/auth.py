"""Who is asking: runner tokens, user and admin keys.

Guarantees: fails closed. What is not a well-formed credential in force is 401, whatever it holds.
"""

from __future__ import annotations

import hmac

from flask import request

from api.errors import forbidden, unauthorized
from api.ports import Principal
from api.services import services
from dispatch.runner import Runner

KEY_CHARS_MAX = 200


def bearer() -> str:
    """Return the request's bearer credential.

    Raises:
        ProblemError: 401, there is none.
    """
    scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not credential.isascii() or len(credential) > KEY_CHARS_MAX:
        raise unauthorized("a bearer credential is required")
    return credential


def require_runner(runner_id: str, *, seen: bool = False) -> Runner:
    """Return the runner that the credential proves. `seen`: note each time that it was here.

    Raises:
        ProblemError: 401, it is wrong, missing, revoked or forgotten.
    """
    runners = services().queue.runners
    recognise = runners.greet if seen else runners.verify
    runner = recognise(runner_id, bearer(), now=services().now())
    if runner is None:
        raise unauthorized("the runner's token is not valid; register anew")
    return runner


def require_principal() -> Principal:
    """Return whose key was sent.

    Raises:
        ProblemError: 401.
    """
    principal = services().judge.principal(bearer())
    if principal is None:
        raise unauthorized("the key is not valid")
    return principal


def require_admin() -> Principal:
    """Return the admin whose key was sent.

    Raises:
        ProblemError: 401, or 403 for a user's key.
    """
    principal = require_principal()
    if not principal.admin:
        raise forbidden("an admin key is required")
    return principal


def same_secret(given: str, kept: str) -> bool:
    """Compare in constant time; text that is not valid Unicode is simply not the same."""
    return hmac.compare_digest(
        given.encode("utf-8", "surrogatepass"), kept.encode("utf-8", "surrogatepass")
    )
