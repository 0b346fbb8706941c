"""Tables of the usage of ranks and node groups over time, in buckets (see domain/usage.py).

Each primary key begins with level and start, so that rows that are written or deleted together are adjacent on disk.
"""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from hai_backend.store.tables.base import Base, table


class UsageRow(Base):
    __tablename__ = "usage"
    level: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    start: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    task_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    run: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    count: Mapped[int]
    cpus: Mapped[float]
    cpus_max: Mapped[float]
    memory_bytes: Mapped[float]
    memory_bytes_max: Mapped[float]
    gpu_count: Mapped[int]
    gpu_utilisation: Mapped[float]
    gpu_utilisation_max: Mapped[float]
    gpu_memory_bytes: Mapped[float]
    gpu_memory_bytes_max: Mapped[float]
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012


class GroupUsageRow(Base):
    __tablename__ = "group_usage"
    level: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    start: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    group_name: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]
    nodes: Mapped[float]
    busy_nodes: Mapped[float]
    gpus: Mapped[float]
    booked_gpus: Mapped[float]
    waiting_tasks: Mapped[float]
    gpus_measured: Mapped[float]
    gpu_utilisation: Mapped[float]
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012


USAGE = table(UsageRow)
GROUP_USAGE = table(GroupUsageRow)
Index("usage_task", USAGE.c.task_id, USAGE.c.level, USAGE.c.start)
