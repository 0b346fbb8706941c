"""The syntax of task filters, as ListTasks and WatchTasks read it and the terminal app extends it. Loads no protobuf.

filter    = term {blank term}                   all terms must hold
term      = ["-"] key operator values           "-" negates
operator  = ":" | "=" | "<" | "<=" | ">" | ">="
values    = value {"," value}                   one must hold; quotes enclose blanks and commas
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_TERM = re.compile(
    r"(?P<minus>-?)(?P<key>[A-Za-z_]+)(?::?(?P<operator><=|>=|<|>|=)|:)(?P<values>.*)", re.DOTALL
)
_VALUE = re.compile(r'"([^"]*)"?|([^,"]+)')
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")

COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq,
}  # fmt: skip

STATE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "waiting": ("WAITING_INIT",),
    "waiting_init": ("WAITING_INIT",),
    "running": ("RUNNING",),
    "suspended": ("SUSPENDED",),
    "finished": ("FINISHED",),
    "queued": ("WAITING_INIT", "SUSPENDED"),
    "unfinished": ("WAITING_INIT", "RUNNING", "SUSPENDED"),
}
"""The values of `state:` that the server accepts, with the task states that each selects."""


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. The key is in lower case. `values` is empty if the text has none."""

    text: str  # the first 60 characters as written, for messages
    key: str
    operator: str
    values: tuple[str, ...]
    negated: bool


def split_words(text: str) -> tuple[str, ...]:
    """Split a filter into words. Blanks within quotes do not separate words."""
    return tuple(_WORD.findall(text))


def parse_term(word: str) -> Term | None:
    """Return the condition of a word, or None if it does not have the form key:value."""
    found = _TERM.fullmatch(word)
    if found is None:
        return None
    values = tuple(quoted or plain for quoted, plain in _VALUE.findall(found["values"]))
    return Term(
        text=word[:60],
        key=found["key"].lower(),
        operator=found["operator"] or ":",
        values=values,
        negated=bool(found["minus"]),
    )


def quote(value: str) -> str:
    """Return a value for a term, in quotes if it contains other than plain characters."""
    if _PLAIN.fullmatch(value) and not value.startswith("-"):
        return value
    widened = value.replace('"', "*")  # a value cannot contain a quote; * matches one
    return f'"{widened}"'
