"""Messages of operators to one user, a user group, or everybody, with or without an expiry."""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.domain.accounts.user import User


@dataclass(frozen=True, slots=True)
class Message:
    """`subject` empty: for everybody."""

    id: int
    subject: str
    subject_is_group: bool
    text: str
    author: str
    created_at: float
    expires_at: float | None = None

    def concerns(self, user: User) -> bool:
        """Whether the message is for this user."""
        if self.subject_is_group:
            return self.subject in user.groups
        return self.subject in ("", user.name)
