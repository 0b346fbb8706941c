"""Changes as macOS tells of them, through watchfiles; it, too, follows no links there."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from watchfiles import awatch

STEP_MS = 3  # it looks for new events this often; costs 1 % of a core
WAIT_MS = 1000


async def told(root: str) -> AsyncGenerator[set[str] | None, None]:
    """As `inotify.told`, but that nothing ends it."""
    yield None
    watching = awatch(
        root,
        watch_filter=None,
        debounce=STEP_MS * 2,
        step=STEP_MS,
        recursive=True,
        ignore_permission_denied=True,
        rust_timeout=WAIT_MS,
        yield_on_timeout=True,
    )
    async for changes in watching:
        paths = {path[len(root) + 1 :] for _, path in changes}
        yield None if "" in paths else paths
