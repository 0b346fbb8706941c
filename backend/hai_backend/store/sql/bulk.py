"""Inserts or replaces many rows with few statements (INSERT … ON CONFLICT DO UPDATE).

sqlite3 releases the interpreter lock at each step of a statement. While the event loop is busy, it must wait for the
lock each time. All rows of a table are therefore written by one statement, so a batch of 32 new tasks needs a few steps
instead of a hundred. SQLAlchemy compiles the statement for one row only. For more rows, this module repeats the VALUES
group in the SQL text, which is a hundred times faster than compiling thousands of parameters. The driver gets the
values unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Column, Connection, Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite

_MAX_ROWS = 64  # in one statement
_IMMUTABLE = frozenset({"request_id"})  # columns that an update leaves unchanged
# a parameter in SQL for PostgreSQL; in SQL for SQLite, every parameter is `?`
_NUMBERED_PARAMETER = re.compile(r"\$(\d+)")


class BulkWriter:
    """Writes rows to one database. Builds the statement of each table and number of rows once."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
        self._one_row_statements: dict[tuple[str, int], str] = {}  # by table and column count
        self._statements: dict[tuple[str, int, int], str] = {}  # by table, column count, row count

    def put(self, connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows, or replace rows with the same primary key. No key may occur twice.

        A row has one value per column. If the database assigns the key, the rows lack the first column.
        """
        for start in range(0, len(rows), _MAX_ROWS):
            part = rows[start : start + _MAX_ROWS]
            sql = self._statement(table, len(part), len(part[0]))
            connection.exec_driver_sql(sql, tuple(chain.from_iterable(part)))

    def _statement(self, table: Table, row_count: int, column_count: int) -> str:
        key = (table.name, column_count, row_count)
        if key not in self._statements:
            one_row = self._one_row_statement(table, column_count)
            self._statements[key] = _repeat_values(one_row, row_count, column_count)
        return self._statements[key]

    def _one_row_statement(self, table: Table, column_count: int) -> str:
        key = (table.name, column_count)
        if key not in self._one_row_statements:
            self._one_row_statements[key] = self._compile(table, column_count)
        return self._one_row_statements[key]

    def _compile(self, table: Table, column_count: int) -> str:
        columns = list(table.columns)[-column_count:]
        insert = self._insert(table).values(dict.fromkeys(column.name for column in columns))
        updates = {c.name: insert.excluded[c.name] for c in columns if _is_updated(c)}
        key = list(table.primary_key)
        if column_count == len(table.columns) and updates:
            insert = insert.on_conflict_do_update(index_elements=key, set_=updates)
        elif column_count == len(table.columns):
            insert = insert.on_conflict_do_nothing(index_elements=key)
        return str(insert.inline().compile(dialect=self._dialect))


def _repeat_values(one_row: str, row_count: int, column_count: int) -> str:
    """Turn `… VALUES ($1, $2) …` into `… VALUES ($1, $2), ($3, $4) …`."""
    head, values, tail = one_row.partition(" VALUES ")
    group, conflict, action = tail.partition(" ON CONFLICT ")
    groups = (
        _NUMBERED_PARAMETER.sub(lambda found, n=n: f"${int(found[1]) + n * column_count}", group)  # type: ignore[misc]
        for n in range(row_count)
    )
    return head + values + ", ".join(groups) + conflict + action


def _is_updated(column: Column[Any]) -> bool:
    return not column.primary_key and column.name not in _IMMUTABLE
