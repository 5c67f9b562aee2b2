"""What the domain refuses. Each error carries the stable slug that programs read as `reason`."""

from __future__ import annotations


class DomainError(Exception):
    """Base of all refusals; the message is for people and names the field or thing."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class NotFoundError(DomainError):
    """Something the request names does not exist."""


class InvalidError(DomainError):
    """What was sent cannot be taken as it is."""


class ForbiddenError(DomainError):
    """It exists and is well formed, but may not be done by this person, or not now."""


class ConflictError(DomainError):
    """It collides with what is already there."""
