"""A directory in memory for libraries that write a checkpoint of many files themselves.

The directory, `NUMBER.dir` in the staging directory, is locked while it is filled. Then its files become the buffers of
a staged checkpoint, which is written to disk later and published as one directory (sharded_checkpoint.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

from hai.task import staging, staging_buffers
from hai.task.channel import log_line
from hai.task.staging import FileInMemory


class StagedDirectory:
    """An empty directory in memory, until `stage` or `discard` is called."""

    def __init__(self, staging_directory: Path) -> None:
        self._staging = staging_directory
        self._number = f"{time.time_ns():020d}-{os.getpid()}"
        self.path = staging_directory / (self._number + staging.DIRECTORY)
        self.path.mkdir()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def stage(self, folder: Path, target: Path, step: int, keep: int) -> None:
        """Publish all files of a folder in the directory as a staged checkpoint, and remove the directory."""
        files = []
        with (
            ExitStack() as stack
        ):  # the locks keep the buffers from being removed before they are published
            for index, source in enumerate(sorted(p for p in folder.rglob("*") if p.is_file())):
                fcntl.flock(stack.enter_context(source.open("rb")), fcntl.LOCK_EX)
                data = self._staging / f"{self._number}-{index}{staging.DATA}"
                name, size = str(source.relative_to(folder)), source.stat().st_size
                source.rename(data)
                files.append(FileInMemory(data, size, name))
            manifest = json.dumps({"files": {file.name: {"size": file.size} for file in files}})
            staging.publish(self._staging, target, files, step, keep, manifest)
        self.discard()

    def discard(self) -> None:
        """Remove the directory with its files."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def create(size: int, target: Path) -> StagedDirectory | None:
    """Return a directory for files of `size` bytes; None if there is no memory for them, or none for this target."""
    directory = staging.directory_for(target)
    if directory is None:
        return None
    allowed = staging_buffers.buffers(directory).allowed()
    try:
        if size <= allowed:
            return StagedDirectory(directory)
    except OSError as error:
        log_line(f"a checkpoint is written directly, while the program waits: {error}")
        return None
    log_line(
        f"a checkpoint is written directly, while the program waits: {size} bytes do not fit into {allowed} bytes"
    )
    return None
