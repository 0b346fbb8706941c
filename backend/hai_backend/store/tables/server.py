"""Tables of one row: how far the counters are, and which server leads."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from hai_backend.store.tables.base import Base, table


class MetaRow(Base):
    """One row of counters. Every write locks it first, so versions are allotted in the order of commits."""

    __tablename__ = "meta"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int]
    last_task_id: Mapped[int]
    last_token_id: Mapped[int]


class LeaderRow(Base):
    """One row: who leads. `server/leadership/` renews it; store/sql/transaction.py refuses writes of earlier epochs."""

    __tablename__ = "leader"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int]  # grows with every leader
    address: Mapped[str]  # empty: it has resigned
    backend: Mapped[int]  # the database process of the session that holds the lock
    renewed_at: Mapped[float]  # by the database's clock


META = table(MetaRow)
LEADER = table(LeaderRow)
