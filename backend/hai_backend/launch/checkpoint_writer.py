"""`hai-checkpoint-writer ROOT` writes the staged checkpoints of a machine to disk, then ends.

Only one writer of a directory writes at a time. Checkpoints of one target are written in order. One that cannot be
written, for example because the disk is full, stays in memory, and is tried again as long as it takes.

With `--until-released`, as in the pod of a writer, it runs until no agent uses the directory, and then removes what is
left in it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hai.task import staging
from hai.task.staging import StagedCheckpoint
from hai_backend.launch import write_reports

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_NICENESS = 5  # programs come first
_RESYNC_MILLISECONDS = 5000  # changes may be missed while a directory is new
WRITER_LOCK = "writer.lock"


def main(argv: Sequence[str] | None = None) -> int:
    """Write until no checkpoint is staged, and with `--until-released` also until no agent uses the directory."""
    parser = argparse.ArgumentParser(prog="hai-checkpoint-writer", description=__doc__)
    parser.add_argument("root", type=Path, help="the directory that has a directory for each task")
    parser.add_argument("--until-released", action="store_true", help="run while an agent uses it")
    options = parser.parse_args(argv)
    if not os.access(options.root, os.W_OK | os.X_OK):
        # A kubelet has made the directory again after the node has lost its memory.
        _log(f"{options.root} is not the directory of this user: nothing to write")
        return 0
    os.nice(_NICENESS)
    if options.until_released:
        # Kubernetes asks pods to end when their node is drained. This one ends when all is on disk.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write_until_released(options.root)
    else:
        _write_alone(options.root)
    return 0


def write_until_released(root: Path) -> None:
    """Write checkpoints until no agent uses the directory and nothing is staged. Then remove what is left in it."""
    while True:
        released = threading.Event()
        threading.Thread(target=_wait_for_release, args=(root, released), daemon=True).start()
        _write_alone(root)
        for _ in _changes(root, released):
            _write_alone(root)
        if _remove_if_unused(root):
            return


def _changes(root: Path, released: threading.Event) -> Iterator[object]:
    """Yield when checkpoints may have been staged, until `released` is set."""
    from watchfiles import watch

    return watch(
        root,
        watch_filter=lambda _, path: path.endswith(staging.STAGED),
        debounce=100,
        step=10,
        stop_event=released,
        rust_timeout=_RESYNC_MILLISECONDS,
        yield_on_timeout=True,
        raise_interrupt=False,
    )


def _wait_for_release(root: Path, released: threading.Event) -> None:
    with _locked(root, fcntl.LOCK_EX):
        released.set()


def _remove_if_unused(root: Path) -> bool:
    """Remove everything in the directory. Return False if an agent uses it, or something is staged."""
    with suppress(BlockingIOError), _locked(root, fcntl.LOCK_EX | fcntl.LOCK_NB):
        if _pending(root):
            return False
        for path in root.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return True
    return False


@contextmanager
def _locked(directory: Path, operation: int) -> Iterator[None]:
    """Lock a directory. Agents share its lock while they use it."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, operation)
        yield
    finally:
        os.close(handle)


def _write_alone(root: Path) -> None:
    """Write what is staged when no other writer does."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # do not wait for a named pipe
    lock = os.open(root / WRITER_LOCK, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_all(root)
    finally:
        os.close(lock)


def write_all(root: Path, pause: Callable[[float], None] = time.sleep) -> None:
    """Write the staged checkpoints of all tasks in the order in which they were saved."""
    seconds = _FIRST_PAUSE
    while found := _pending(root):
        if _write(root, found):
            seconds = _FIRST_PAUSE
        else:
            pause(seconds)
            seconds = min(2 * seconds, _LONGEST_PAUSE)


def _pending(root: Path) -> list[StagedCheckpoint]:
    found = [staged for directory in _directories(root) for staged in staging.pending(directory)]
    return sorted(found, key=lambda staged: staged.path.name)


def _directories(root: Path) -> list[Path]:
    """Return the staging directories of tasks."""
    return [path for path in root.iterdir() if path.name.isdecimal()]


def _write(root: Path, found: list[StagedCheckpoint]) -> bool:
    """Write checkpoints. Return whether any was written."""
    failed: set[Path] = set()
    for staged in found:
        if staged.target in failed:
            continue  # a later checkpoint must not become durable before an earlier one
        started = time.monotonic()
        try:
            wrote = staging.write_out(staged)
        except Exception as error:  # the checkpoints of other tasks must not wait
            failed.add(staged.target)
            _log(f"{staged.target} of step {staged.step} cannot be written: {error}")
        else:
            seconds = time.monotonic() - started
            _log(f"wrote {staged.target} of step {staged.step}: {staged.size} B, {seconds:.2f} s")
            if wrote:
                write_reports.put(root, staged, seconds)
    return len(failed) < len({staged.target for staged in found})


def _log(message: str) -> None:
    print(time.strftime("%FT%TZ", time.gmtime()), message, flush=True)


if __name__ == "__main__":
    sys.exit(main())
