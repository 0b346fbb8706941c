"""Tables of usage over time; indexes of audited calls by actor, method, resource and time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column

revision = "0009"
down_revision = "0008"

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
FLOAT = sa.Float(53)


def upgrade() -> None:
    """Add the empty tables and the indexes."""
    op.create_table(
        "usage",
        *(_key(name) for name in ("level", "start", "task_id", "run", "rank")),
        Column("count", INT, nullable=False),
        Column("cpus", FLOAT, nullable=False),
        Column("cpus_max", FLOAT, nullable=False),
        Column("memory_bytes", FLOAT, nullable=False),
        Column("memory_bytes_max", FLOAT, nullable=False),
        Column("gpu_count", INT, nullable=False),
        Column("gpu_utilisation", FLOAT, nullable=False),
        Column("gpu_utilisation_max", FLOAT, nullable=False),
        Column("gpu_memory_bytes", FLOAT, nullable=False),
        Column("gpu_memory_bytes_max", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("level", "start", "task_id", "run", "rank"),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_task", "usage", ["task_id", "level", "start"])
    op.create_table(
        "group_usage",
        _key("level"),
        _key("start"),
        Column("group_name", STR, nullable=False),
        Column("count", INT, nullable=False),
        Column("nodes", FLOAT, nullable=False),
        Column("busy_nodes", FLOAT, nullable=False),
        Column("gpus", FLOAT, nullable=False),
        Column("booked_gpus", FLOAT, nullable=False),
        Column("waiting_tasks", FLOAT, nullable=False),
        Column("gpus_measured", FLOAT, nullable=False),
        Column("gpu_utilisation", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("level", "start", "group_name"),
        sqlite_with_rowid=False,
    )
    for column in ("actor", "method", "resource", "time"):
        op.create_index(f"audit_{column}", "audit", [column, "id"])


def _key(name: str) -> Column[int]:
    return Column(name, INT, autoincrement=False, nullable=False)
