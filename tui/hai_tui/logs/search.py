"""Finding text in lines: a regular expression, or the words themselves where they are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hai_tui.logs.ansi_sanitize import plain
from hai_tui.logs.window import Line
from hai_tui.safe_regex import SafeRegex

Test = Callable[[Line], bool]


def compile_query(query: str) -> SafeRegex | None:
    """What a person typed; capitals count only where some are typed. None for nothing."""
    if not query:
        return None
    flags = re.IGNORECASE if query == query.lower() else 0
    try:
        return SafeRegex(query, flags)
    except re.error:
        return SafeRegex(re.escape(query), flags)


def matches(search_pattern: SafeRegex) -> Test:
    """True for lines in which it occurs, as they are seen."""
    return lambda line: search_pattern.search(plain(line.text)) is not None


def next_hit(lines: Sequence[Line], start: int, test: Test, *, back: bool = False) -> int | None:
    """The place of the nearest line that passes, from `start` (included) on."""
    indices = range(start, -1, -1) if back else range(max(0, start), len(lines))
    return next((i for i in indices if test(lines[i])), None)
