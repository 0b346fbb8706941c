"""A regular expression with a limit of CPU time, because a pattern that a user typed, such as `(x+)+y`, may never end.

An alarm signal ends the search: `re` handles signals while it searches.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from time import thread_time
from typing import Any, ClassVar, TypeVar

Found = TypeVar("Found")

_SECONDS = 0.5
_SECONDS_PER_CHARACTER = 5e-6  # what is well made takes a fiftieth of it


class _TooSlow(Exception):
    pass


class SafeRegex:
    """Raises re.error. Once it has given up it finds nothing any more."""

    _searching: ClassVar[bool] = False

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._re = re.compile(pattern, flags)
        self._endless = any(map(pattern.count, "*+{")) and sum(map(pattern.count, "*+{?|")) > 1
        self._left = _SECONDS
        self.gave_up = False
        if self._endless:
            signal.signal(signal.SIGVTALRM, _ring)

    @property
    def pattern(self) -> str:
        """As it was typed."""
        return self._re.pattern

    def search(self, text: str) -> re.Match[str] | None:
        """The first place where it is."""
        return self._within(text, lambda: self._re.search(text))

    def all(self, text: str) -> list[re.Match[str]]:
        """Every place where it is."""
        return self._within(text, lambda: list(self._re.finditer(text))) or []

    def _within(self, text: str, ask: Callable[[], Found]) -> Found | None:
        if self.gave_up or not self._endless:
            return None if self.gave_up else ask()
        left, found = self._left + len(text) * _SECONDS_PER_CHARACTER, None
        began = thread_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, left)
        try:
            SafeRegex._searching = True
            found = ask()
            SafeRegex._searching = False
        except _TooSlow:
            self.gave_up = True
        finally:
            SafeRegex._searching = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self._left = min(_SECONDS, left - (thread_time() - began))
        self.gave_up = self.gave_up or self._left <= 0
        return found


def _ring(*_: Any) -> None:
    if SafeRegex._searching:
        SafeRegex._searching = False
        raise _TooSlow
