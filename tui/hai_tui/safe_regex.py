"""Regular expressions with a limit of CPU time, because a pattern that a user typed may search forever (`(x+)+y`).

An alarm signal ends the search: `re` handles signals while it searches.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from time import thread_time
from typing import Any, ClassVar, TypeVar

Result = TypeVar("Result")

_SECONDS = 0.5
_SECONDS_PER_CHARACTER = 5e-6  # a well-made pattern takes a fiftieth of this


class _TooSlow(Exception):
    pass


class SafeRegex:
    """A compiled pattern. The constructor raises re.error. Once its time is used up, it finds nothing any more."""

    _searching: ClassVar[bool] = False

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._re = re.compile(pattern, flags)
        self._may_be_slow = any(map(pattern.count, "*+{")) and sum(map(pattern.count, "*+{?|")) > 1
        self._seconds_left = _SECONDS
        self.gave_up = False
        if self._may_be_slow:
            signal.signal(signal.SIGVTALRM, _on_alarm)

    @property
    def pattern(self) -> str:
        return self._re.pattern

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match."""
        return self._run_limited(text, lambda: self._re.search(text))

    def all(self, text: str) -> list[re.Match[str]]:
        """Return all matches."""
        return self._run_limited(text, lambda: list(self._re.finditer(text))) or []

    def _run_limited(self, text: str, search_once: Callable[[], Result]) -> Result | None:
        if self.gave_up or not self._may_be_slow:
            return None if self.gave_up else search_once()
        seconds_left, result = self._seconds_left + len(text) * _SECONDS_PER_CHARACTER, None
        started_at = thread_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds_left)
        try:
            SafeRegex._searching = True
            result = search_once()
            SafeRegex._searching = False
        except _TooSlow:
            self.gave_up = True
        finally:
            SafeRegex._searching = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self._seconds_left = min(_SECONDS, seconds_left - (thread_time() - started_at))
        self.gave_up = self.gave_up or self._seconds_left <= 0
        return result


def _on_alarm(*_: Any) -> None:
    if SafeRegex._searching:
        SafeRegex._searching = False
        raise _TooSlow
