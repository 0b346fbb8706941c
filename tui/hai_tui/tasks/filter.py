"""The filter line of the task list, such as `status:failed tag:bert user:me age:<2d`. Pure.

Terms are ANDed, commas OR values, a leading - or ! negates. A bare word is searched in name, user, tags and id; /…/ is
a regular expression on the name. The language is that of `hai list`, but it tolerates unfinished input.

Loaded tasks are matched here. Older tasks are requested with `Filter.server`, the part of the filter that the server
understands. Its answer may contain more tasks than match, never fewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hai.client.tasks.filters import split_words
from hai_tui.tasks.filter_terms import KEYS, STATUS_KEYWORDS, FilterError, Term, make_term

if TYPE_CHECKING:
    from hai_tui.feed.task_row import TaskRow

__all__ = ["KEYS", "STATUS_KEYWORDS", "Filter", "FilterError", "parse"]

_SUBSTRING_TERM = re.compile(
    r"(?:name:|why:)?[\w.-]+"
)  # an extended word matches a subset of the tasks
_NEGATIONS = ("-", "!")


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter line."""

    source: str = ""
    terms: tuple[Term, ...] = ()
    term_texts: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """The filter for the server."""
        return " ".join(term.server for term in self.terms if term.server)

    @property
    def problem(self) -> str:
        """The reason why the filter has stopped matching; empty if it works."""
        return next((message for term in self.terms if (message := term.problem())), "")

    def remaining_after(self, earlier: Filter) -> Filter | None:
        """Return the terms left to check for tasks that matched the earlier filter.

        Return None if other tasks may match, too.
        """
        common = len(earlier.term_texts)
        if self.term_texts[:common] == earlier.term_texts:
            return self._from(common)
        if (
            len(self.term_texts) < common
            or self.term_texts[: common - 1] != earlier.term_texts[:-1]
        ):
            return None
        is_narrowed = _is_narrowed(earlier.term_texts[-1], self.term_texts[common - 1])
        return self._from(common - 1) if is_narrowed else None

    def _from(self, index: int) -> Filter:
        return Filter(self.source, self.terms[index:], self.term_texts[index:])

    def among(self, tasks: Iterable[TaskRow], now: float) -> list[TaskRow]:
        """Return the tasks for which every term holds, in their order."""
        matching = list(tasks)
        for term in self.terms:
            matching = term.keep(matching, now)
        return matching


def parse(source: str, me: str = "") -> Filter:
    """Parse a filter line; `me` is the caller. Raise FilterError."""
    texts = split_words(source)
    return Filter(source, tuple(_parse_term(term_text, me) for term_text in texts), texts)


def _parse_term(term_text: str, me: str) -> Term:
    negated = len(term_text) > 1 and term_text.startswith(_NEGATIONS)
    return make_term(term_text[1:], me).negated() if negated else make_term(term_text, me)


def _is_narrowed(term_text: str, longer: str) -> bool:
    """Return True if every task that matches the longer term also matches the other one."""
    both_substrings = _SUBSTRING_TERM.fullmatch(term_text) and _SUBSTRING_TERM.fullmatch(longer)
    same_kind = (":" in term_text) is (":" in longer)  # `why` is a word, `why:` is a key
    return (
        bool(both_substrings)
        and same_kind
        and not term_text.startswith(_NEGATIONS)
        and longer.startswith(term_text)
    )
