"""`python -m hai_backend.launch.checkpoint_writer ROOT` writes the staged checkpoints of a machine to disk, then ends.

Only one writer runs at a time. Checkpoints of one target are written in order. One that cannot be written, for example
because the disk is full, stays in memory, and is tried again as long as it takes.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hai.task import staging
from hai.task.staging import StagedCheckpoint

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_NICENESS = 5  # programs come first


def main(root: Path) -> int:
    """Write until no checkpoint is staged."""
    with (root / "writer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.nice(_NICENESS)
        write_all(root)
    return 0


def write_all(root: Path, pause: Callable[[float], None] = time.sleep) -> None:
    """Write the staged checkpoints of all tasks in the order in which they were saved."""
    seconds = _FIRST_PAUSE
    while found := _pending(root):
        if _write(found):
            seconds = _FIRST_PAUSE
        else:
            pause(seconds)
            seconds = min(2 * seconds, _LONGEST_PAUSE)


def _pending(root: Path) -> list[StagedCheckpoint]:
    directories = [path for path in root.iterdir() if path.name.isdecimal()]
    found = [staged for directory in directories for staged in staging.pending(directory)]
    return sorted(found, key=lambda staged: staged.path.name)


def _write(found: list[StagedCheckpoint]) -> bool:
    """Write checkpoints. Return whether any was written."""
    failed: set[Path] = set()
    for staged in found:
        if staged.target in failed:
            continue  # a later checkpoint must not become durable before an earlier one
        started = time.monotonic()
        try:
            staging.write_out(staged)
        except Exception as error:  # the checkpoints of other tasks must not wait
            failed.add(staged.target)
            _log(f"{staged.target} of step {staged.step} cannot be written: {error}")
        else:
            seconds = time.monotonic() - started
            _log(f"wrote {staged.target} of step {staged.step}: {staged.size} B, {seconds:.2f} s")
    return len(failed) < len({staged.target for staged in found})


def _log(message: str) -> None:
    print(time.strftime("%FT%TZ", time.gmtime()), message, flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
