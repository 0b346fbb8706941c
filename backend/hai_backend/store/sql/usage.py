"""Usage over time in an SQL database. Each write adds minutes, builds coarser buckets and deletes expired ones.

No state is kept in memory between two writes. A level is complete until the end of its newest bucket. The next write
builds the coarser buckets after this time from the finer ones. After a crash or a pause, a server therefore continues
where the last write ended.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    cast,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    true,
)

from hai_backend.domain.usage import (
    LEVELS,
    GroupLoad,
    Load,
    Minutes,
    RankUse,
    Use,
    Window,
    bucket_start,
    split_by_level,
)
from hai_backend.store.sql.transaction import Transaction
from hai_backend.store.tables.usage import GROUP_USAGE, USAGE

_TABLES = (USAGE, GROUP_USAGE)


def add_usage(transaction: Transaction, minutes: Minutes) -> None:
    """Insert or replace minutes, then build the coarser levels and delete expired buckets."""
    transaction.put(
        USAGE,
        [(0, r.start, r.task_id, r.run, r.rank, *r.use) for r in minutes.ranks],
    )
    transaction.put(GROUP_USAGE, [(0, g.start, g.group, *g.load) for g in minutes.groups])
    for table in _TABLES:
        for level in range(1, len(LEVELS)):
            _roll_up(transaction.connection, table, level, minutes.until)
        _delete_outdated(transaction, table, minutes.until)


def task_usage(
    connection: Connection, task_id: int, ranks: Collection[int], window: Window
) -> list[RankUse]:
    condition = and_(USAGE.c.task_id == task_id, USAGE.c.rank.in_(ranks) if ranks else true())
    rows = connection.execute(_steps_query(connection, USAGE, window, condition))
    steps = [_rank_use(*row) for row in rows]
    return sorted(steps, key=lambda step: (step.rank, step.run, step.start))


def group_usage(connection: Connection, group: str, window: Window) -> list[GroupLoad]:
    condition = GROUP_USAGE.c.group_name == group if group else true()
    rows = connection.execute(_steps_query(connection, GROUP_USAGE, window, condition))
    steps = [_group_load(*row) for row in rows]
    return sorted(steps, key=lambda step: (step.group, step.start))


def _rank_use(start: int, task_id: int, run: int, rank: int, *values: Any) -> RankUse:
    return RankUse(task_id, run, rank, start, Use(*values))


def _group_load(start: int, group: str, *values: Any) -> GroupLoad:
    return GroupLoad(group, start, Load(*values))


def _steps_query(
    connection: Connection, table: Table, window: Window, condition: ColumnElement[bool]
) -> Select[Any]:
    complete = [_complete_until(connection, table, level) for level in range(len(LEVELS))]
    # "+ 0" prevents SQLite from using the primary key, because it would scan the time range of all tasks.
    start_column, level_column = table.c.start + _constant(0), table.c.level + _constant(0)
    in_window = [
        and_(level_column == level, start_column >= start, start_column < end)
        for level, start, end in split_by_level(window, complete)
    ]
    return _aggregate(table, window.step, and_(condition, or_(*in_window)))


def _complete_until(connection: Connection, table: Table, level: int) -> int:
    """Return the end of the newest bucket of a level, or 0 if there is none."""
    newest = select(func.max(table.c.start)).where(table.c.level == level)
    start = connection.scalar(newest)
    return 0 if start is None else int(start) + LEVELS[level].seconds


def _roll_up(connection: Connection, table: Table, level: int, until: int) -> None:
    seconds = LEVELS[level].seconds
    start, end = _complete_until(connection, table, level), bucket_start(until, seconds)
    if start >= end:
        return
    finer = and_(table.c.level == level - 1, table.c.start >= start, table.c.start < end)
    coarser = _aggregate(table, seconds, finer)
    columns = [c.name for c in coarser.selected_columns]
    rows = coarser.add_columns(_constant(level))
    connection.execute(insert(table).from_select([*columns, "level"], rows))


def _delete_outdated(transaction: Transaction, table: Table, until: int) -> None:
    """Delete expired buckets, and buckets after `until`.

    Only a server with a wrong clock writes buckets in the future. These would prevent the roll-up until their time.
    """
    for index, level in enumerate(LEVELS):
        is_outdated = table.c.start >= until
        if level.keep_seconds is not None:
            is_outdated = or_(is_outdated, table.c.start < until - level.keep_seconds)
        transaction.delete(delete(table).where(table.c.level == index, is_outdated))


def _aggregate(table: Table, step: int, condition: ColumnElement[bool]) -> Select[Any]:
    """Return a query that merges buckets into buckets of `step` seconds.

    Its columns are the start, the keys of the rank or group, then sums and maxima.
    """
    start = (table.c.start - table.c.start % _constant(step)).label("start")
    keys = [c for c in table.primary_key if c.name not in ("level", "start")]
    values = [c for c in table.columns if not c.primary_key]
    aggregates = (_aggregate_column(c).label(c.name) for c in values)
    return select(start, *keys, *aggregates).where(condition).group_by(start, *keys)


def _aggregate_column(column: Column[Any]) -> ColumnElement[Any]:
    if column.name.endswith("_max"):
        return func.max(column)
    return cast(func.sum(column), column.type)  # on PostgreSQL, the sum of integers is a decimal


def _constant(number: int) -> ColumnElement[int]:
    """Return a number as a part of the SQL text.

    PostgreSQL treats two parameters with the same value as different expressions, and could not group by them.
    """
    return literal_column(str(int(number)), BigInteger())
