"""The tables, typed. These modules are tables themselves: one class per table, one line per column.

Columns that are filtered or ordered by stand on their own; a task's spec is a JSON text. Names are `user_name` and
`group_name` because `user` and `group` mean something else to PostgreSQL. Text compares by code point everywhere
(collation C on PostgreSQL), so that both databases and Python order alike. Classes exist for their types and for
alembic: the hot paths use the Table objects (in capitals) and no unit of work.
"""

from __future__ import annotations

from hai_backend.store.tables import accounts, cluster, records, server, tasks, usage
from hai_backend.store.tables.base import Base

# Whoever has Base has all tables.
__all__ = ["Base", "accounts", "cluster", "records", "server", "tasks", "usage"]
