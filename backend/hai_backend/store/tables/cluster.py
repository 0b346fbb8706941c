"""Tables of nodes and node groups, and the tables of counters and of the leader, which have one row each."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from hai_backend.store.tables.base import Base, table


class NodeRow(Base):
    __tablename__ = "nodes"
    name: Mapped[str] = mapped_column(primary_key=True)
    group_name: Mapped[str]
    zone: Mapped[str]
    state: Mapped[str]
    cordoned: Mapped[bool]
    gpus: Mapped[int]
    gpus_simulated: Mapped[bool]
    cpus: Mapped[int]
    memory_bytes: Mapped[int]
    topology: Mapped[str]  # JSON
    reason: Mapped[str]
    updated_at: Mapped[float]
    version: Mapped[int]
    labels: Mapped[str] = mapped_column(server_default="{}")  # JSON


class GroupRow(Base):
    __tablename__ = "node_groups"
    name: Mapped[str] = mapped_column(primary_key=True)
    packed: Mapped[bool]
    # JSON; empty if the group has no policy of its own
    policy: Mapped[str] = mapped_column(server_default="")


class MetaRow(Base):
    """The counters. Every write first locks this row, so versions are assigned in the order of the commits."""

    __tablename__ = "meta"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int]
    last_task_id: Mapped[int]
    last_token_id: Mapped[int]


class LeaderRow(Base):
    """The leader. server/election/ renews this row; sql/transaction.py refuses writes of earlier epochs."""

    __tablename__ = "leader"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int]  # increases with every new leader
    address: Mapped[str]  # empty after the leader has resigned
    backend: Mapped[int]  # process id of the database session that holds the leader lock
    renewed_at: Mapped[float]  # time of the database clock


NODES = table(NodeRow)
GROUPS = table(GroupRow)
META = table(MetaRow)
LEADER = table(LeaderRow)
