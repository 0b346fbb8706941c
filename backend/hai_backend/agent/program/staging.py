"""The staging directory of a rank, where its program puts checkpoints that are not yet on disk: see hai.task.staging.

A launcher names the directory in HAI_STAGING_DIR. In a pod, its parent directory belongs to the task, and another pod
writes the checkpoints: see hai_backend.launch.checkpoint_writer.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from hai.task import env, staging
from hai_backend.agent.rank_dir import write_agent_log


class StagingDirectory:
    """The directory that the agent's environment names, if it names one."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def create(self) -> None:
        """Create the directory, and lock its parent until this process ends, so that no writer removes the directory.

        Without the directory, the program writes its checkpoints directly.
        """
        name = os.environ.get(env.STAGING_DIR)
        if not name:
            return
        path = Path(name)
        try:
            # never closed, because that would release the lock
            fcntl.flock(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            write_agent_log(f"checkpoints are written directly: no directory in memory: {error}")
        else:
            self._path = path

    def has_files(self) -> bool:
        """Return whether there are checkpoints in the directory that are not yet on disk, or buffers for them."""
        try:
            return self._path is not None and any(self._path.iterdir())
        except FileNotFoundError:  # somebody has removed the directory
            return False

    async def write_out(self) -> None:
        """Write all checkpoints to disk, because the node may lose its memory. An error leaves them to the writer."""
        if self._path is not None:
            try:
                await asyncio.to_thread(staging.write_out_all, self._path)
            except OSError as error:
                write_agent_log(f"checkpoints stay in memory: {error}")
