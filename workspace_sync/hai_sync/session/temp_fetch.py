"""Files of the cluster for a moment, beside those of the workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hai_sync.core.entry import Tree
from hai_sync.remote.downloader import Download, fetch
from hai_sync.remote.endpoint import Remote


@asynccontextmanager
async def borrowed(
    remote: Remote, revision: int, files: Tree, task: int = 0
) -> AsyncIterator[Callable[[str], Path]]:
    """Where each lies while this lasts; nothing of them stays."""
    with TemporaryDirectory(prefix="hai-") as folder:
        download = Download(revision, files, Path(folder), task=task)
        await fetch(remote, download, lambda files, size: None)
        yield lambda path: download.place(files[path].digest)
