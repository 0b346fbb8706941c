"""One write transaction: its connection, its counters, and what it learns for the next one.

The counters' row is read with a lock before anything else, which makes writers of several servers wait for one
another on PostgreSQL; SQLite has one writer anyway. Hence versions become visible in the order of their numbers.
With it the row `leader` is locked and its epoch compared, in the same statement: whoever leads next raises the epoch
under a lock that excludes this one, so a write of an earlier leader is either committed before, or refused. The
leader's own renewal of that row does not wait for it: a slow write deposes nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Delete, Table, bindparam, select, update

from hai_backend.domain.errors import Deposed
from hai_backend.domain.task import Run, RunState
from hai_backend.store.sql.bulk import Bulk
from hai_backend.store.tables.server import LEADER, META

# Built once: building a statement costs more than running it.
_NEW = tuple(f"new_{column.name}" for column in META.columns)
_COUNTED = update(META).values(
    {column: bindparam(new) for column, new in zip(META.columns, _NEW, strict=True)}
)
_COUNTERS = select(META).with_for_update()
_COUNTERS_AND_EPOCH = (
    select(META, LEADER.c.epoch)
    .where(META.c.id == LEADER.c.id)
    .with_for_update(of=META)
    .suffix_with("FOR KEY SHARE OF leader", dialect="postgresql")
)

Runs = dict[int, tuple[int, Run]]
"""By task: the run as this server last wrote it, and the revision of that write. Ended runs are forgotten."""


class Transaction:
    """Use within `connection.begin()`; call `finish` last."""

    def __init__(
        self, connection: Connection, bulk: Bulk, runs: Runs, epoch: int | None = None
    ) -> None:
        self.connection = connection
        self._bulk = bulk
        self._runs = runs
        self.written: Runs = {}
        self._before = _counters(connection, epoch)
        _, self._version, self._last_task_id, self._last_token_id = self._before

    def put(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert or replace rows."""
        self._bulk.put(self.connection, table, rows)

    def delete(self, statement: Delete) -> int:
        """Delete rows and tell how many there were."""
        return self.connection.execute(statement).rowcount

    def next_version(self) -> int:
        """The version of the next written task or node."""
        self._version += 1
        return self._version

    def next_task_id(self) -> int:
        """The identity of a new task."""
        self._last_task_id += 1
        return self._last_task_id

    def skip_task_ids(self, newest: int) -> None:
        """Give new tasks larger identities than this one."""
        self._last_task_id = max(self._last_task_id, newest)

    def next_token_id(self) -> int:
        """The identity of a new token."""
        self._last_token_id += 1
        return self._last_token_id

    def known_run(self, task_id: int, revision: int) -> Run | None:
        """The run that stands in the database at that revision, if this server wrote it."""
        known = self.written.get(task_id) or self._runs.get(task_id)
        return known[1] if known is not None and known[0] == revision else None

    def finish(self) -> None:
        """Write the counters back."""
        after = (1, self._version, self._last_task_id, self._last_token_id)
        if after != self._before:
            self.connection.execute(_COUNTED, dict(zip(_NEW, after, strict=True)))

    def remember(self) -> None:
        """After the commit: keep what was written for the next transaction."""
        for task_id, (revision, run) in self.written.items():
            if run.state is RunState.ENDED:
                self._runs.pop(task_id, None)
            else:
                self._runs[task_id] = (revision, run)


def _counters(connection: Connection, epoch: int | None) -> tuple[int, ...]:
    """Locked. Raises Deposed when `epoch`, the one in which this server leads, is over; None: nobody else may lead."""
    if epoch is None:
        return tuple(connection.execute(_COUNTERS).one())
    *counters, newest = connection.execute(_COUNTERS_AND_EPOCH).one()
    check_epoch(epoch, newest)
    return tuple(counters)


def check_epoch(ours: int | None, newest: int | None) -> None:
    """Raises Deposed when another server leads."""
    if ours != newest:
        raise Deposed(
            f"another server leads (epoch {newest}; this one led in {ours}): nothing was written, try again"
        )
