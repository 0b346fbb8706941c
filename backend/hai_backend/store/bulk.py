"""INSERT … ON CONFLICT UPDATE of many rows with few statements.

sqlite3 lets go of the interpreter lock at every step of a statement, and beside a busy event loop each step then
waits for its turn. So rows are written with multi-row statements in a few fixed sizes, compiled once per size: a
batch of 32 creates costs a handful of steps, not a hundred. Parameters go to the driver as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Column, Connection, Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite

_SIZES = (64, 32, 16, 8, 4, 2, 1)
_WRITTEN_ONCE = frozenset({"request_id"})


class Bulk:
    """Compiled statements of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
        self._compiled: dict[tuple[str, int], str] = {}

    def put(self, connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows, or replace those of the same primary key; no key may occur twice.

        A row has one value per column, or, where the database gives the key, lacks the first.
        """
        for part in _parts(rows):
            sql = self._statement(table, len(part), len(part[0]))
            connection.exec_driver_sql(sql, tuple(chain.from_iterable(part)))

    def _statement(self, table: Table, rows: int, width: int) -> str:
        key = (table.name, rows)
        if key not in self._compiled:
            self._compiled[key] = self._compile(table, rows, width)
        return self._compiled[key]

    def _compile(self, table: Table, rows: int, width: int) -> str:
        columns = list(table.columns)[-width:]
        row = dict.fromkeys((column.name for column in columns), None)
        insert = self._insert(table).values([row] * rows)
        replaced = {c.name: insert.excluded[c.name] for c in columns if _replaced(c)}
        if width == len(table.columns) and replaced:
            insert = insert.on_conflict_do_update(index_elements=_key(table), set_=replaced)
        elif width == len(table.columns):
            insert = insert.on_conflict_do_nothing(index_elements=_key(table))
        return str(insert.inline().compile(dialect=self._dialect))


def _key(table: Table) -> list[Column[Any]]:
    return list(table.primary_key)


def _replaced(column: Column[Any]) -> bool:
    return not column.primary_key and column.name not in _WRITTEN_ONCE


def _parts(rows: Sequence[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    start = 0
    while start < len(rows):
        size = next(s for s in _SIZES if s <= len(rows) - start)
        yield rows[start : start + size]
        start += size
