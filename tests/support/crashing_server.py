"""`hai-server`, except that it kills itself with SIGKILL just before or just after its n-th write of a task.

    python -m tests.support.crashing_server --home DIR … --kill-at 3:after

tests/e2e/operations/test_fault_points.py runs one scenario with every write, before and after.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, cast

from hai_backend import main as server_main
from hai_backend.domain.task import Task, TaskEvent
from hai_backend.store.base import Store
from hai_backend.store.connect import open_store


class CrashingStore:
    """A store that kills this process around its n-th write of a task. It passes all other calls to the real store."""

    def __init__(self, store: Store, write: int, position: str) -> None:
        self._store = store
        self._remaining_writes = write
        self._position = position

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create_task(
        self, task: Task, events: Sequence[TaskEvent], request_id: str = ""
    ) -> Task:
        crash = self._is_last_write()
        _kill_if(crash and self._position == "before")
        saved = await self._store.create_task(task, events, request_id)
        _kill_if(crash)
        return saved

    async def save_task(
        self, task: Task, events: Sequence[TaskEvent], records: Sequence[object] = ()
    ) -> Task | None:
        crash = self._is_last_write()
        _kill_if(crash and self._position == "before")
        saved = await self._store.save_task(task, events, records)
        _kill_if(crash)
        return saved

    def _is_last_write(self) -> bool:
        self._remaining_writes -= 1
        return self._remaining_writes == 0


def _kill_if(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


def main(argv: Sequence[str]) -> int:
    """Remove `--kill-at N:before|after` from the arguments, and run the server with the others."""
    at = argv.index("--kill-at")
    write, position = argv[at + 1].split(":")
    arguments = [*argv[:at], *argv[at + 2 :]]
    return server_main.main(
        arguments,
        open_store=lambda url, epoch=None: cast(
            Store, CrashingStore(open_store(url, epoch), int(write), position)
        ),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
