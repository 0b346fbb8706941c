"""The description of a kind of resource for its page, and the values that were typed into a form."""

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
_MOST = 2**31 - 1  # what the contract has room for
_DIGITS = 20  # more are not worth reading as a number


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a form. Its label is the text field.NAME, its hint field.NAME.hint where there is one."""

    name: str
    value: Callable[[Item], str] = lambda item: ""
    choices: tuple[str, ...] = ()  # completed while typing
    violation: str = ""  # what the server calls it; empty: its name


def unchanged_fields(names: Sequence[str]) -> tuple[Field, ...]:
    """Fields that begin with what the item has."""
    return tuple(Field(name, attrgetter(name)) for name in names)


@dataclass(slots=True)
class Answers:
    """What was typed. A value that can not be read is noted in `wrong` and stands as empty."""

    values: Mapping[str, str]
    now: float = 0.0
    wrong: dict[str, str] = field(default_factory=dict)
    confirmed: bool = False  # the same was doubted before
    questioned: bool = False

    def text(self, name: str) -> str:
        """As it is, without blanks around it."""
        return self.values.get(name, "").strip()

    def list_of(self, name: str) -> list[str]:
        """Parts between commas."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def number(self, name: str, otherwise: int = 0) -> int:
        """A whole number."""
        typed_text = self.text(name)
        if not typed_text:
            return otherwise
        if not _INTEGER.fullmatch(typed_text):
            self.wrong[name] = text("form.number", value=typed_text)
            return otherwise
        if len(typed_text) > _DIGITS or abs(int(typed_text)) > _MOST:
            self.wrong[name] = text("form.large", value=typed_text, most=_MOST)
            return otherwise
        return int(typed_text)

    def flag(self, name: str) -> bool:
        """yes or no."""
        return self.choice(name, YES_NO[::-1]) == "yes"

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """One of some words, the first one when nothing is typed."""
        typed_text = self.text(name).lower() or allowed[0]
        if typed_text not in allowed:
            self.wrong[name] = text("form.choice", value=typed_text, known=", ".join(allowed))
            return allowed[0]
        return typed_text

    def level(self, name: str) -> int:
        """A priority; ALL and nothing are -1."""
        typed_text = self.text(name)
        if not typed_text or typed_text.upper() == "ALL":
            return -1
        return int(
            self._read(name, lambda: formatting.Priority().convert(typed_text, None, None), -1)
        )

    def span(self, name: str) -> float:
        """Seconds; nothing is none."""
        typed_text = self.text(name)
        return (
            float(self._read(name, lambda: formatting.seconds(typed_text), 0))
            if typed_text
            else 0.0
        )

    def time(self, name: str) -> datetime | None:
        """A point in time, or none."""
        typed_text = self.text(name)
        if not typed_text or typed_text == "never":
            return None
        found = self._read(name, lambda: formatting.deadline(typed_text, self.now), None)
        return found if isinstance(found, datetime) else None

    def _read(self, name: str, read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except click.BadParameter as error:
            self.wrong[name] = error.message
            return otherwise


@dataclass(frozen=True, slots=True)
class Verb:
    """Something to do: `make` turns the item and the answers into what `send` sends. Its label is the text do.NAME."""

    key: str
    name: str
    send: Callable[[Client, Any], Awaitable[Any]]
    make: Callable[[Item, Answers], Any] = lambda item, answers: item
    fields: tuple[Field, ...] = ()
    new: bool = False  # needs no item
    needs_confirmation: bool = False  # a yes is wanted first
    word_to_type: Callable[[Item], str] | None = None  # or this word, written out
    right: str = ""
    role: str = ""  # the least one, where no right stands for it
    writes: bool = True
    result_text: Callable[[Any], str] | None = (
        None  # shown until it is closed, instead of a passing note
    )
    clipboard_text: Callable[[Any], str] | None = None  # the part of it that a person takes along


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """A kind. `opens` is a line as after `:`, for items that have a page of their own."""

    name: str
    view: View
    load: Callable[[Client], Awaitable[Sequence[Item]]]
    verbs: tuple[Verb, ...] = ()
    opens: Callable[[Item], str] | None = None
    extra: tuple[Column, ...] = ()
    live: bool = False  # asked for again when tasks have changed
    most: int = 0  # so many are answered at most; 0: all are

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the command, and those that only the app has."""
        return self.view.columns + self.extra
