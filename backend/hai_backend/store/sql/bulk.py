"""INSERT … ON CONFLICT UPDATE of many rows with few statements.

sqlite3 lets go of the interpreter lock at every step of a statement, and beside a busy event loop each step then
waits for its turn. So all rows of a table go in one statement: a batch of 32 creates costs a handful of steps, not a
hundred. SQLAlchemy compiles the statement for one row; for more rows its VALUES group is repeated, which is a hundred
times faster than compiling thousands of parameters. Parameters go to the driver as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Column, Connection, Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite

_MOST_ROWS = 64  # of one statement
_WRITTEN_ONCE = frozenset({"request_id"})
_NUMBERED = re.compile(r"\$(\d+)")  # PostgreSQL's parameters; SQLite's are all `?`


class Bulk:
    """Statements of one database, each made once."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
        self._compiled: dict[tuple[str, int], str] = {}  # by table and width, of one row
        self._made: dict[tuple[str, int, int], str] = {}  # and by rows

    def put(self, connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows, or replace those of the same primary key; no key may occur twice.

        A row has one value per column, or, where the database gives the key, lacks the first.
        """
        for start in range(0, len(rows), _MOST_ROWS):
            part = rows[start : start + _MOST_ROWS]
            sql = self._statement(table, len(part), len(part[0]))
            connection.exec_driver_sql(sql, tuple(chain.from_iterable(part)))

    def _statement(self, table: Table, rows: int, width: int) -> str:
        key = (table.name, width, rows)
        if key not in self._made:
            self._made[key] = _repeated(self._one_row(table, width), rows, width)
        return self._made[key]

    def _one_row(self, table: Table, width: int) -> str:
        key = (table.name, width)
        if key not in self._compiled:
            self._compiled[key] = self._compile(table, width)
        return self._compiled[key]

    def _compile(self, table: Table, width: int) -> str:
        columns = list(table.columns)[-width:]
        insert = self._insert(table).values(dict.fromkeys(column.name for column in columns))
        replaced = {c.name: insert.excluded[c.name] for c in columns if _replaced(c)}
        if width == len(table.columns) and replaced:
            insert = insert.on_conflict_do_update(index_elements=_key(table), set_=replaced)
        elif width == len(table.columns):
            insert = insert.on_conflict_do_nothing(index_elements=_key(table))
        return str(insert.inline().compile(dialect=self._dialect))


def _repeated(one_row: str, rows: int, width: int) -> str:
    """`… VALUES ($1, $2) …` as `… VALUES ($1, $2), ($3, $4) …`."""
    head, values, rest = one_row.partition(" VALUES ")
    group, conflict, tail = rest.partition(" ON CONFLICT ")
    groups = (
        _NUMBERED.sub(lambda found, n=n: f"${int(found[1]) + n * width}", group)  # type: ignore[misc]
        for n in range(rows)
    )
    return head + values + ", ".join(groups) + conflict + tail


def _key(table: Table) -> list[Column[Any]]:
    return list(table.primary_key)


def _replaced(column: Column[Any]) -> bool:
    return not column.primary_key and column.name not in _WRITTEN_ONCE
