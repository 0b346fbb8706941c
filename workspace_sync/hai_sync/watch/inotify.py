"""Watches a root through inotify, until another directory is mounted there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing, suppress

from hai.host.inotify import Inotify
from hai_sync.core.names import is_private
from hai_sync.workspace_dir import root_id

WAIT_SECONDS = 1.0


async def changed_paths(root: str) -> AsyncGenerator[set[str] | None, None]:
    """Yield changed paths, sometimes an empty set. The first None means: watching has begun; the next: restart."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    initial_id = _root_id(root)
    with closing(Inotify(root, is_private)) as watcher:
        await asyncio.to_thread(watcher.add, "")
        yield None
        loop.add_reader(watcher.file, ready.set)
        try:
            paths: set[str] | None = set()
            while paths is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_SECONDS):
                        await ready.wait()
                ready.clear()
                paths = watcher.read() if _root_id(root) == initial_id else None
                yield paths
        finally:
            loop.remove_reader(watcher.file)


def _root_id(root: str) -> str:
    """Return a text that changes when the root is unmounted or mounted again."""
    try:
        return root_id(root)
    except OSError:
        return ""
