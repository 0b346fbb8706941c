"""The filter line of the task list: `status:failed tag:bert user:me age:<2d`. Pure.

Terms are ANDed, commas OR values, a leading - or ! negates; a bare word is looked for in name, user,
tags and id, /…/ is a regular expression on the name. It is `hai list`'s language, made forgiving for
typing: what is known locally is matched here, and `server` is the part that the server understands,
which asks it for older tasks (it may answer with more than match; never with less).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hai.client.tasks.filters import split_words
from hai_tui.tasks.filter_terms import KEYS, STATUS_WORDS, FilterError, Term, term

if TYPE_CHECKING:
    from hai_tui.feed.task_row import TaskRow

__all__ = ["KEYS", "STATUS_WORDS", "Filter", "FilterError", "parse"]

_GROWS = re.compile(r"(?:name:|why:)?[\w.-]+")  # a part of a text: what has more of it has it too
_NEGATES = ("-", "!")


@dataclass(frozen=True, slots=True)
class Filter:
    """What matches, and the part of it that the server understands."""

    source: str = ""
    terms: tuple[Term, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """What the server is asked for."""
        return " ".join(each.server for each in self.terms if each.server)

    @property
    def trouble(self) -> str:
        """Why it finds nothing any more; empty: it does."""
        return next((told for each in self.terms if (told := each.trouble())), "")

    def after(self, earlier: Filter) -> Filter | None:
        """What is left to ask of those that matched the earlier one; None: others may match too."""
        same = len(earlier.words)
        if self.words[:same] == earlier.words:
            return self._from(same)
        if len(self.words) < same or self.words[: same - 1] != earlier.words[:-1]:
            return None
        grows = _grows(earlier.words[-1], self.words[same - 1])
        return self._from(same - 1) if grows else None

    def _from(self, place: int) -> Filter:
        return Filter(self.source, self.terms[place:], self.words[place:])

    def among(self, tasks: Iterable[TaskRow], now: float) -> list[TaskRow]:
        """Those for which every term holds, in their order."""
        found = list(tasks)
        for each in self.terms:
            found = each.keep(found, now)
        return found


def parse(source: str, me: str = "") -> Filter:
    """The filter that a line means; `me` is the caller. Raises FilterError."""
    words = split_words(source)
    return Filter(source, tuple(_signed(word, me) for word in words), words)


def _signed(word: str, me: str) -> Term:
    negated = len(word) > 1 and word.startswith(_NEGATES)
    return term(word[1:], me).negated() if negated else term(word, me)


def _grows(word: str, longer: str) -> bool:
    plain = _GROWS.fullmatch(word) and _GROWS.fullmatch(longer)
    same = (":" in word) is (":" in longer)  # `why` is a word in itself, before it is a key
    return bool(plain) and same and not word.startswith(_NEGATES) and longer.startswith(word)
