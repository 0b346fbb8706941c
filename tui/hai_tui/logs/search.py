"""Finding text in lines: a regular expression, or the words themselves where they are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hai_tui.logs.harmless import plain
from hai_tui.logs.window import Line

Test = Callable[[Line], bool]


def pattern(words: str) -> re.Pattern[str] | None:
    """What a person typed; capitals count only where some are typed. None for nothing."""
    if not words:
        return None
    flags = re.IGNORECASE if words == words.lower() else 0
    try:
        return re.compile(words, flags)
    except re.error:
        return re.compile(re.escape(words), flags)


def matches(wanted: re.Pattern[str]) -> Test:
    """True for lines in which it occurs, as they are seen."""
    return lambda line: wanted.search(plain(line.text)) is not None


def next_hit(lines: Sequence[Line], start: int, test: Test, *, back: bool = False) -> int | None:
    """The place of the nearest line that passes, from `start` (included) on."""
    places = range(start, -1, -1) if back else range(max(0, start), len(lines))
    return next((i for i in places if test(lines[i])), None)
