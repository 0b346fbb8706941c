"""A write transaction: its connection, its counters, and the runs that it has written.

Every transaction first locks the row of counters. On PostgreSQL, writers of several servers therefore wait for one
another, and versions become visible in the order of their numbers. SQLite has only one writer.

The same statement locks the row `leader` and reads its epoch. A server that becomes the leader needs a conflicting lock
to increase the epoch. A write of the previous leader is therefore either committed before the change, or refused. The
lock of a write does not block renewals of the row, so a leader does not lose its leadership because of a slow write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Delete, Table, bindparam, select, update

from hai_backend.domain.errors import Deposed
from hai_backend.domain.task import Run, RunState
from hai_backend.store.sql.bulk import BulkWriter
from hai_backend.store.tables.cluster import LEADER, META

# These statements are built once, because building one takes longer than executing it.
_PARAMETERS = tuple(f"new_{column.name}" for column in META.columns)
_UPDATE_COUNTERS = update(META).values(
    {column: bindparam(name) for column, name in zip(META.columns, _PARAMETERS, strict=True)}
)
_COUNTERS = select(META).with_for_update()
_COUNTERS_AND_EPOCH = (
    select(META, LEADER.c.epoch)
    .where(META.c.id == LEADER.c.id)
    .with_for_update(of=META)
    .suffix_with("FOR KEY SHARE OF leader", dialect="postgresql")
)

Runs = dict[int, tuple[int, Run]]
"""Maps a task to the run that this server wrote last, with the task's revision. Ended runs are removed."""


class Transaction:
    """A transaction within `connection.begin()`. The caller calls `finish` last, and `commit_runs` after the commit."""

    def __init__(
        self, connection: Connection, bulk: BulkWriter, runs: Runs, epoch: int | None = None
    ) -> None:
        self.connection = connection
        self._bulk = bulk
        self._runs = runs
        self.written_runs: Runs = {}
        self._old_counters = _lock_counters(connection, epoch)
        _, self._version, self._last_task_id, self._last_token_id = self._old_counters

    def put(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert or replace rows."""
        self._bulk.put(self.connection, table, rows)

    def delete(self, statement: Delete) -> int:
        """Delete rows. Return their number."""
        return self.connection.execute(statement).rowcount

    def next_version(self) -> int:
        """Return a new version for a task or node that is written."""
        self._version += 1
        return self._version

    def next_task_id(self) -> int:
        """Return the id of a new task."""
        self._last_task_id += 1
        return self._last_task_id

    def skip_task_ids(self, newest: int) -> None:
        """Give new tasks ids above `newest`."""
        self._last_task_id = max(self._last_task_id, newest)

    def next_token_id(self) -> int:
        """Return the id of a new token."""
        self._last_token_id += 1
        return self._last_token_id

    def stored_run(self, task_id: int, revision: int) -> Run | None:
        """Return the stored run of this revision of the task, or None if this server has not written it."""
        revision_and_run = self.written_runs.get(task_id) or self._runs.get(task_id)
        if revision_and_run is None or revision_and_run[0] != revision:
            return None
        return revision_and_run[1]

    def finish(self) -> None:
        """Write the changed counters."""
        counters = (1, self._version, self._last_task_id, self._last_token_id)
        if counters != self._old_counters:
            values = dict(zip(_PARAMETERS, counters, strict=True))
            self.connection.execute(_UPDATE_COUNTERS, values)

    def commit_runs(self) -> None:
        """Make the written runs available to later transactions. Must be called after the commit only."""
        for task_id, (revision, run) in self.written_runs.items():
            if run.state is RunState.ENDED:
                self._runs.pop(task_id, None)
            else:
                self._runs[task_id] = (revision, run)


def _lock_counters(connection: Connection, epoch: int | None) -> tuple[int, ...]:
    """Lock and return the row of counters. Raises Deposed if `epoch` is neither None nor the current epoch."""
    if epoch is None:
        return tuple(connection.execute(_COUNTERS).one())
    *counters, newest = connection.execute(_COUNTERS_AND_EPOCH).one()
    check_epoch(epoch, newest)
    return tuple(counters)


def check_epoch(epoch: int | None, newest: int | None) -> None:
    """Raise Deposed if the current epoch `newest` is not `epoch`, because another server leads."""
    if epoch != newest:
        raise Deposed(
            f"another server leads (epoch {newest}; this one led in {epoch}): nothing was written, try again"
        )
