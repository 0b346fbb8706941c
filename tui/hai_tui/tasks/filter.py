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
from hai_tui.tasks.filter_terms import KEYS, STATUS_KEYWORDS, FilterError, Term, term

if TYPE_CHECKING:
    from hai_tui.feed.task_row import TaskRow

__all__ = ["KEYS", "STATUS_KEYWORDS", "Filter", "FilterError", "parse"]

_GROWS = re.compile(r"(?:name:|why:)?[\w.-]+")  # a part of a text: what has more of it has it too
_NEGATES = ("-", "!")


@dataclass(frozen=True, slots=True)
class Filter:
    """What matches, and the part of it that the server understands."""

    source: str = ""
    terms: tuple[Term, ...] = ()
    term_texts: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """What the server is asked for."""
        return " ".join(each.server for each in self.terms if each.server)

    @property
    def problem(self) -> str:
        """Why it finds nothing any more; empty: it does."""
        return next((message for each in self.terms if (message := each.problem())), "")

    def remaining_after(self, earlier: Filter) -> Filter | None:
        """What is left to ask of those that matched the earlier one; None: others may match too."""
        common = len(earlier.term_texts)
        if self.term_texts[:common] == earlier.term_texts:
            return self._from(common)
        if (
            len(self.term_texts) < common
            or self.term_texts[: common - 1] != earlier.term_texts[:-1]
        ):
            return None
        grows = _grows(earlier.term_texts[-1], self.term_texts[common - 1])
        return self._from(common - 1) if grows else None

    def _from(self, index: int) -> Filter:
        return Filter(self.source, self.terms[index:], self.term_texts[index:])

    def among(self, tasks: Iterable[TaskRow], now: float) -> list[TaskRow]:
        """Those for which every term holds, in their order."""
        found = list(tasks)
        for each in self.terms:
            found = each.keep(found, now)
        return found


def parse(source: str, me: str = "") -> Filter:
    """The filter that a line means; `me` is the caller. Raises FilterError."""
    texts = split_words(source)
    return Filter(source, tuple(_parse_term(term_text, me) for term_text in texts), texts)


def _parse_term(term_text: str, me: str) -> Term:
    negated = len(term_text) > 1 and term_text.startswith(_NEGATES)
    return term(term_text[1:], me).negated() if negated else term(term_text, me)


def _grows(term_text: str, longer: str) -> bool:
    plain = _GROWS.fullmatch(term_text) and _GROWS.fullmatch(longer)
    common = (":" in term_text) is (":" in longer)  # `why` is a word in itself, before it is a key
    return (
        bool(plain)
        and common
        and not term_text.startswith(_NEGATES)
        and longer.startswith(term_text)
    )
