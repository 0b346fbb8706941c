"""Checks the fields of a request, and collects all violations so that one error names all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from hai.client.taskfile.validation.violations import Violations, quote_shortened, suggestion_text
from hai_backend.domain.errors import Invalid, Violation

Choice = TypeVar("Choice", bound=StrEnum)
Entry = TypeVar("Entry")

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Includes the characters that change the direction of text: with them one name can look like another
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class FieldViolations:
    """The violations of one request. Each `check_…` method returns the value that it checks."""

    def __init__(self) -> None:
        self._violations = Violations()
        self._reasons: set[str] = set()

    def add(self, field: str, message: str, reason: str = "INVALID") -> None:
        """Add a violation."""
        self._violations.add(field, message)
        self._reasons.add(reason)

    def has_none(self, *fields: str) -> bool:
        """Say whether these fields have no violations so far."""
        return self._violations.ok(*fields)

    def raise_if_any(self) -> None:
        """Raise Invalid with all violations. Its reason is that of the violations if they have the same one."""
        if self._reasons:
            reason = self._reasons.pop() if len(self._reasons) == 1 else "INVALID"
            violations = tuple(Violation(each.field, each.message) for each in self._violations)
            raise Invalid(violations, reason=reason)

    def check_text(self, field: str, value: str, max_chars: int) -> str:
        """Check a text that a program receives: its length, and that it has no NUL."""
        self._check_length(field, value, max_chars)
        if "\0" in value:
            self.add(field, "contains a NUL byte, which no program can receive")
        return value

    def check_line(self, field: str, value: str, max_chars: int) -> str:
        """Check a text that people read: its length, and that it has no control characters."""
        self._check_length(field, value, max_chars)
        if _CONTROL.search(value):
            self.add(field, "contains control characters or line breaks")
        return value

    def _check_length(self, field: str, value: str, max_chars: int) -> None:
        if len(value) > max_chars:
            self.add(field, f"has {len(value)} characters; at most {max_chars} are allowed")

    def check_pattern(
        self, field: str, value: str, pattern: re.Pattern[str], description: str
    ) -> str:
        """Check that a text matches a pattern, which `description` explains in words."""
        if not pattern.fullmatch(value):
            self.add(field, f"{quote_shortened(value)} must be {description}")
        return value

    def check_count(self, field: str, entries: Sequence[Entry], max_count: int) -> Sequence[Entry]:
        """Check the number of entries. Return no entries if there are too many, so that each is not checked."""
        if len(entries) <= max_count:
            return entries
        self.add(field, f"has {len(entries)} entries; at most {max_count} are allowed")
        return ()

    def check_range(self, field: str, value: int, minimum: int, maximum: int) -> int:
        """Check that a number lies within limits."""
        if not minimum <= value <= maximum:
            self.add(field, f"must be from {minimum} to {maximum}, not {value}")
        return value

    def check_choice(self, field: str, value: str, kind: type[Choice], default: Choice) -> Choice:
        """Check that a text is a member of an enum. Return the member, or the default for an empty or wrong text."""
        try:
            return kind(value) if value else default
        except ValueError:
            self.add(
                field,
                f"{quote_shortened(value)} must be one of {', '.join(kind)}{suggestion_text(value, kind)}",
            )
            return default
