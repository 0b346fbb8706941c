"""What operators tell users: a sentence for one, for a user group, or for everybody, until a moment or for ever."""

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
        """Whether it is for this user."""
        if self.subject_is_group:
            return self.subject in user.groups
        return self.subject in ("", user.name)
