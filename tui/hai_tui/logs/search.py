"""Searches log lines for a regular expression or for literal text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hai_tui.logs.ansi_sanitize import plain
from hai_tui.logs.window import Line
from hai_tui.safe_regex import SafeRegex

Test = Callable[[Line], bool]


def compile_query(query: str) -> SafeRegex | None:
    """Return a pattern for what the user typed; None if it is empty.

    Text that is not a valid regular expression is searched literally. Case matters only if the query has capitals.
    """
    if not query:
        return None
    flags = re.IGNORECASE if query == query.lower() else 0
    try:
        return SafeRegex(query, flags)
    except re.error:
        return SafeRegex(re.escape(query), flags)


def matches(pattern: SafeRegex) -> Test:
    """Return a test for lines whose visible text contains the pattern."""
    return lambda line: pattern.search(plain(line.text)) is not None


def next_hit(lines: Sequence[Line], start: int, test: Test, *, back: bool = False) -> int | None:
    """Return the index of the nearest line that passes the test, starting with `start`."""
    indices = range(start, -1, -1) if back else range(max(0, start), len(lines))
    return next((i for i in indices if test(lines[i])), None)
