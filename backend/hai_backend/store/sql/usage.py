"""Series of use in a SQL database: written by the minute, rolled up and dropped in the same transaction.

Nothing is remembered between two writes. A level is complete until its newest bucket ends, so what is to be rolled up
is every finer bucket after it: a server that was away, or crashed, goes on where the last one stopped.
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


def add(transaction: Transaction, minutes: Minutes) -> None:
    """Insert or replace minutes, then bring the coarser levels up to date and drop what has expired."""
    transaction.put(
        USAGE,
        [(0, r.start, r.task_id, r.run, r.rank, *r.use) for r in minutes.ranks],
    )
    transaction.put(GROUP_USAGE, [(0, g.start, g.group, *g.load) for g in minutes.groups])
    for table in _TABLES:
        for level in range(1, len(LEVELS)):
            _roll_up(transaction.connection, table, level, minutes.until)
        _drop(transaction, table, minutes.until)


def of_task(
    connection: Connection, task_id: int, ranks: Collection[int], asked: Window
) -> list[RankUse]:
    """Steps by rank, run and time."""
    mine = and_(USAGE.c.task_id == task_id, USAGE.c.rank.in_(ranks) if ranks else true())
    rows = connection.execute(_steps(connection, USAGE, asked, mine))
    found = [_rank_use(*row) for row in rows]
    return sorted(found, key=lambda one: (one.rank, one.run, one.start))


def of_groups(connection: Connection, group: str, asked: Window) -> list[GroupLoad]:
    """Steps by group and time."""
    wanted = GROUP_USAGE.c.group_name == group if group else true()
    rows = connection.execute(_steps(connection, GROUP_USAGE, asked, wanted))
    found = [_group_load(*row) for row in rows]
    return sorted(found, key=lambda one: (one.group, one.start))


def _rank_use(start: int, task_id: int, run: int, rank: int, *values: Any) -> RankUse:
    return RankUse(task_id, run, rank, start, Use(*values))


def _group_load(start: int, group: str, *values: Any) -> GroupLoad:
    return GroupLoad(group, start, Load(*values))


def _steps(
    connection: Connection, table: Table, asked: Window, wanted: ColumnElement[bool]
) -> Select[Any]:
    done = [_complete(connection, table, level) for level in range(len(LEVELS))]
    # The sums hide the key: SQLite would go through the time of all tasks, not through the rows of one.
    at, of_level = table.c.start + _constant(0), table.c.level + _constant(0)
    which = [
        and_(of_level == level, at >= start, at < end)
        for level, start, end in split_by_level(asked, done)
    ]
    return _folded(table, asked.step, and_(wanted, or_(*which)))


def _complete(connection: Connection, table: Table, level: int) -> int:
    """Until when this level says everything."""
    newest = select(func.max(table.c.start)).where(table.c.level == level)
    start = connection.scalar(newest)
    return 0 if start is None else int(start) + LEVELS[level].seconds


def _roll_up(connection: Connection, table: Table, level: int, until: int) -> None:
    seconds = LEVELS[level].seconds
    since, to = _complete(connection, table, level), bucket_start(until, seconds)
    if since >= to:
        return
    at = table.c.start
    ended = and_(table.c.level == level - 1, at >= since, at < to)
    finer = _folded(table, seconds, ended)
    columns = [c.name for c in finer.selected_columns]
    coarse = finer.add_columns(_constant(level))
    connection.execute(insert(table).from_select([*columns, "level"], coarse))


def _drop(transaction: Transaction, table: Table, until: int) -> None:
    """What is too old; and what lies ahead: it was written under a wrong clock, and no level would be made after it."""
    for index, level in enumerate(LEVELS):
        gone = table.c.start >= until
        if level.keep_seconds is not None:
            gone = or_(gone, table.c.start < until - level.keep_seconds)
        transaction.delete(delete(table).where(table.c.level == index, gone))


def _folded(table: Table, step: int, wanted: ColumnElement[bool]) -> Select[Any]:
    """Buckets of `step` seconds: where each begins, whose it is, and sums or maxima of the rest."""
    begins = (table.c.start - table.c.start % _constant(step)).label("start")
    keys = [c for c in table.primary_key if c.name not in ("level", "start")]
    values = [c for c in table.columns if not c.primary_key]
    folded = (_fold(c).label(c.name) for c in values)
    return select(begins, *keys, *folded).where(wanted).group_by(begins, *keys)


def _fold(column: Column[Any]) -> ColumnElement[Any]:
    if column.name.endswith("_max"):
        return func.max(column)
    return cast(func.sum(column), column.type)  # PostgreSQL's sum of integers is a decimal


def _constant(number: int) -> ColumnElement[int]:
    """In the SQL text: PostgreSQL takes two parameters of one value for two expressions, and cannot group by them."""
    return literal_column(str(int(number)), BigInteger())
