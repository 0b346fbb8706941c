"""Writing a whole log to a file, page by page, without holding it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hai.client.errors import UsageError
from hai_tui.i18n import text
from hai_tui.logs.reader import Reader
from hai_tui.logs.search import compile_query, matches
from hai_tui.logs.window import Line


async def write(
    reader: Reader,
    path: Path,
    *,
    only: str,
    format_line: Callable[[Line], str],
    on_progress: Callable[[int], None],
) -> int:
    """The log as it is now, or its lines with `only`; how many. Raises OSError, and UsageError of a bad `only`."""
    count, search_pattern = 0, compile_query(only)
    passes = matches(search_pattern) if search_pattern else None
    with await asyncio.to_thread(path.open, "w", encoding="utf-8") as file:
        async for lines in reader.everything():
            passing = [format_line(x) + "\n" for x in lines if passes is None or passes(x)]
            await asyncio.to_thread(file.writelines, passing)
            count += len(passing)
            on_progress(count)
    if search_pattern is not None and search_pattern.gave_up:
        raise UsageError(text("logs.slow", wanted=only))
    return count
