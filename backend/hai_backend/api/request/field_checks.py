"""Collects every broken rule of a request, so that a caller hears of all of them at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from hai.client.taskfile.validation.violations import Violations, quote_shortened, suggestion_text
from hai_backend.domain.errors import Invalid, Violation

Choice = TypeVar("Choice", bound=StrEnum)
Kept = TypeVar("Kept")

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Also what turns the direction of text on a screen: a name could look like another one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class Rules:
    """`add` for what is broken; `check` raises when anything was."""

    def __init__(self) -> None:
        self._violations = Violations()
        self._reasons: set[str] = set()

    def add(self, field: str, message: str, reason: str = "INVALID") -> None:
        """One broken rule."""
        self._violations.add(field, message)
        self._reasons.add(reason)

    def ok(self, *fields: str) -> bool:
        """True where nothing is wrong with these fields so far."""
        return self._violations.ok(*fields)

    def check(self) -> None:
        """Raise Invalid with everything; its reason is that of the violations when they agree."""
        if self._reasons:
            reason = self._reasons.pop() if len(self._reasons) == 1 else "INVALID"
            found = tuple(Violation(each.field, each.message) for each in self._violations)
            raise Invalid(found, reason=reason)

    def text(self, field: str, value: str, most: int) -> str:
        """Any text a program may get: no NUL, not too long."""
        if len(value) > most:
            self.add(field, f"has {len(value)} characters; at most {most} are allowed")
        if "\0" in value:
            self.add(field, "contains a NUL byte, which no program can receive")
        return value

    def line(self, field: str, value: str, most: int) -> str:
        """Text that is shown to people: no control characters either."""
        if len(value) > most:
            self.add(field, f"has {len(value)} characters; at most {most} are allowed")
        if _CONTROL.search(value):
            self.add(field, "contains control characters or line breaks")
        return value

    def matching(self, field: str, value: str, pattern: re.Pattern[str], wanted: str) -> str:
        """Text of a given form; `wanted` says it in words."""
        if not pattern.fullmatch(value):
            self.add(field, f"{quote_shortened(value)} must be {wanted}")
        return value

    def few(self, field: str, values: Sequence[Kept], most: int) -> Sequence[Kept]:
        """What shall be looked at one by one: nothing, when there is too much of it."""
        if len(values) <= most:
            return values
        self.add(field, f"has {len(values)} entries; at most {most} are allowed")
        return ()

    def number(self, field: str, value: int, least: int, most: int) -> int:
        """A whole number within limits."""
        if not least <= value <= most:
            self.add(field, f"must be from {least} to {most}, not {value}")
        return value

    def choice(self, field: str, value: str, kind: type[Choice], default: Choice) -> Choice:
        """A word of a closed set; empty: the default."""
        try:
            return kind(value) if value else default
        except ValueError:
            self.add(
                field,
                f"{quote_shortened(value)} must be one of {', '.join(kind)}{suggestion_text(value, kind)}",
            )
            return default
