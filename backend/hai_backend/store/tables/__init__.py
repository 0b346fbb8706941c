"""The tables of the database: one class for each table, one line for each column.

Values that queries filter or order by have columns of their own; a task's spec is stored as JSON. Columns are named
`user_name` and `group_name`, because `user` and `group` are keywords of PostgreSQL. Texts are compared by code point
(collation C on PostgreSQL), so that both databases and Python sort in the same order. The classes declare types and
are read by alembic. Queries use the Table objects (names in capitals) and no ORM session.
"""

from __future__ import annotations

from hai_backend.store.tables import accounts, cluster, records, tasks, usage
from hai_backend.store.tables.base import Base

# An import of Base from this package also defines all tables.
__all__ = ["Base", "accounts", "cluster", "records", "tasks", "usage"]
