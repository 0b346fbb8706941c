"""Tables of nodes and of the groups that they belong to."""

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
    policy: Mapped[str] = mapped_column(server_default="")  # JSON, or empty


NODES = table(NodeRow)
GROUPS = table(GroupRow)
