"""Watches a root through watchfiles, for macOS, where it follows no links."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from watchfiles import awatch

POLL_MS = 3  # interval of polling for new events, which costs 1 % of a core
TIMEOUT_MS = 1000


async def changed_paths(root: str) -> AsyncGenerator[set[str] | None, None]:
    """Yield changed paths as `inotify.changed_paths` does, but never end."""
    yield None
    watcher = awatch(
        root,
        watch_filter=None,
        debounce=POLL_MS * 2,
        step=POLL_MS,
        recursive=True,
        ignore_permission_denied=True,
        rust_timeout=TIMEOUT_MS,
        yield_on_timeout=True,
    )
    async for changes in watcher:
        paths = {path[len(root) + 1 :] for _, path in changes}
        yield None if "" in paths else paths
