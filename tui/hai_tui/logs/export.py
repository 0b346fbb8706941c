"""Writing a whole log to a file, page by page, without holding it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hai.client.errors import UsageError
from hai_tui.i18n import text
from hai_tui.logs.reader import Reader
from hai_tui.logs.search import matches, pattern
from hai_tui.logs.window import Line


async def write(
    reader: Reader,
    path: Path,
    *,
    only: str,
    form: Callable[[Line], str],
    told: Callable[[int], None],
) -> int:
    """The log as it is now, or its lines with `only`; how many. Raises OSError, and UsageError of a bad `only`."""
    count, wanted = 0, pattern(only)
    passes = matches(wanted) if wanted else None
    with await asyncio.to_thread(path.open, "w", encoding="utf-8") as file:
        async for lines in reader.everything():
            kept = [form(x) + "\n" for x in lines if passes is None or passes(x)]
            await asyncio.to_thread(file.writelines, kept)
            count += len(kept)
            told(count)
    if wanted is not None and wanted.gave_up:
        raise UsageError(text("logs.slow", wanted=only))
    return count
