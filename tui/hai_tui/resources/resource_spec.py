"""Describes a kind of resource for its page, and reads the values that were typed into a form."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from hai_tui.formatting import values as formatting
from hai_tui.formatting.table import Column, View
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client

Item = Any
"""A message of the contract."""
YES_NO = ("yes", "no")
_INTEGER = re.compile(r"-?[0-9]+")
_MAX_NUMBER = 2**31 - 1  # the contract has int32 fields
_MAX_DIGITS = 20  # a longer text is not converted to a number at all


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a form. The text field.NAME is its label, the text field.NAME.hint (if there is one) its hint."""

    name: str
    value: Callable[[Item], str] = lambda item: ""
    choices: tuple[str, ...] = ()  # completed while the user types
    violation: str = ""  # the server's name of the field; empty if equal to `name`


IS_GROUP = Field("subject_is_group", lambda item: "no", YES_NO)
EXPIRES = Field("expires", violation="expire_time")


def prefilled_fields(names: Sequence[str]) -> tuple[Field, ...]:
    """Return fields that show the current values of the item."""
    return tuple(Field(name, attrgetter(name)) for name in names)


@dataclass(slots=True)
class Answers:
    """The values of a form. A method that cannot read a value notes why in `errors` and returns the empty value."""

    values: Mapping[str, str]
    now: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)
    warnings_accepted: bool = False  # the user has sent the same values again after a warning
    has_warnings: bool = False

    def text(self, name: str) -> str:
        """Return the value without surrounding blanks."""
        return self.values.get(name, "").strip()

    def list_of(self, name: str) -> list[str]:
        """Return the parts between commas."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def number(self, name: str) -> int:
        """Return an integer; 0 if nothing was typed."""
        value = self.text(name)
        if not value:
            return 0
        if not _INTEGER.fullmatch(value):
            self.errors[name] = text("form.number", value=value)
            return 0
        if len(value) > _MAX_DIGITS or abs(int(value)) > _MAX_NUMBER:
            self.errors[name] = text("form.large", value=value, most=_MAX_NUMBER)
            return 0
        return int(value)

    def flag(self, name: str) -> bool:
        """Return True for yes; nothing typed means no."""
        return self.choice(name, YES_NO[::-1]) == "yes"

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """Return one of the allowed words; the first one if nothing was typed."""
        value = self.text(name).lower() or allowed[0]
        if value not in allowed:
            self.errors[name] = text("form.choice", value=value, known=", ".join(allowed))
            return allowed[0]
        return value

    def level(self, name: str) -> int:
        """Return a priority; -1 for ALL or if nothing was typed."""
        value = self.text(name)
        if not value or value.upper() == "ALL":
            return -1
        return int(self._read(name, lambda: formatting.Priority().convert(value, None, None), -1))

    def span(self, name: str) -> float:
        """Return a duration in seconds; 0 if nothing was typed."""
        value = self.text(name)
        return float(self._read(name, lambda: formatting.seconds(value), 0)) if value else 0.0

    def time(self, name: str) -> datetime | None:
        """Return a point in time; None for `never` or if nothing was typed."""
        value = self.text(name)
        if not value or value == "never":
            return None
        time = self._read(name, lambda: formatting.deadline(value, self.now), None)
        return time if isinstance(time, datetime) else None

    def set_expiry(self, message: Any) -> None:
        """Copy the field `expires` into the `expire_time` of a message."""
        message.ClearField("expire_time")
        if (expires := self.time("expires")) is not None:
            message.expire_time.FromDatetime(expires)

    def _read(self, name: str, read: Callable[[], Any], default: Any) -> Any:
        try:
            return read()
        except click.BadParameter as error:
            self.errors[name] = error.message
            return default


@dataclass(frozen=True, slots=True)
class Verb:
    """An action on a resource: `make` turns the item and the answers into the argument of `send`.

    The text do.NAME is its label.
    """

    key: str
    name: str
    send: Callable[[Client, Any], Awaitable[Any]]
    make: Callable[[Item, Answers], Any] = lambda item, answers: item
    fields: tuple[Field, ...] = ()
    new: bool = False  # creates an item, so the cursor need not be on one
    needs_confirmation: bool = False  # asks yes or no first
    word_to_type: Callable[[Item], str] | None = None  # asks the user to type this word first
    right: str = ""
    role: str = ""  # the least role, where no right exists for the action
    writes: bool = True
    result_text: Callable[[Any], str] | None = None  # shown in a dialog instead of a notification
    clipboard_text: Callable[[Any], str] | None = None  # the part of the result that `c` copies


def delete_verb(
    send: Callable[[Client, Any], Awaitable[Any]],
    *,
    name: str = "delete",
    right: str = "",
    role: str = "",
) -> Verb:
    """Return the verb on ctrl+d, which asks before it deletes the item."""
    return Verb("ctrl+d", name, send, needs_confirmation=True, right=right, role=role)


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """A kind of resource: how the app loads and shows its items, and what users can do with them."""

    name: str
    view: View
    load: Callable[[Client], Awaitable[Sequence[Item]]]
    verbs: tuple[Verb, ...] = ()
    opens: Callable[[Item], str] | None = None  # the line after `:` that opens the item's own page
    extra_columns: tuple[Column, ...] = ()  # shown by the app, not by the command
    live: bool = False  # loaded again whenever tasks change
    limit: int = 0  # the server returns at most so many items; 0 means all

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the command, then those of the app."""
        return self.view.columns + self.extra_columns
