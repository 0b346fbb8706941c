"""Messages of operators to one user, to a user group, or to everybody."""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.domain.accounts.user import User


@dataclass(frozen=True, slots=True)
class Message:
    """A message. If `subject` is empty, it is for everybody."""

    id: int
    subject: str
    subject_is_group: bool
    text: str
    author: str
    created_at: float
    expires_at: float | None = None

    def concerns(self, user: User) -> bool:
        """Return whether the message is for this user."""
        if self.subject_is_group:
            return self.subject in user.groups
        return self.subject in ("", user.name)
