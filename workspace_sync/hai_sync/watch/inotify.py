"""Changes below a root as Linux tells of them, until the root is another directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing, suppress

from hai.host.inotify import Inotify
from hai_sync.core.names import is_own
from hai_sync.workspace_dir import mark

WAIT_SECONDS = 1.0


async def told(root: str) -> AsyncGenerator[set[str] | None, None]:
    """Paths below a root as they are told of, now and then none. The first None: it begins; another: it must anew."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    begun = _here(root)
    with closing(Inotify(root, is_own)) as watching:
        await asyncio.to_thread(watching.add, "")
        yield None
        loop.add_reader(watching.file, ready.set)
        try:
            paths: set[str] | None = set()
            while paths is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_SECONDS):
                        await ready.wait()
                ready.clear()
                paths = watching.read() if _here(root) == begun else None
                yield paths
        finally:
            loop.remove_reader(watching.file)


def _here(root: str) -> str:
    """Another one when something else lies there: it was unmounted, or mounted again."""
    try:
        return mark(root)
    except OSError:
        return ""
