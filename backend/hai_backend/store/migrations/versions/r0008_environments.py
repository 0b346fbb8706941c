"""A table of environments on the shared storage; runs store the lock of their environment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column

revision = "0008"
down_revision = "0007"

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
FLOAT = sa.Float(53)


def upgrade() -> None:
    """Add the empty table and the column, which is empty for existing runs."""
    op.create_table(
        "environments",
        Column("owner_name", STR, nullable=False),
        Column("name", STR, nullable=False),
        Column("state", STR, nullable=False),
        Column("message", STR, nullable=False),
        Column("visibility", STR, nullable=False),
        Column("user_group", STR, nullable=False),
        Column("parent", STR, nullable=False),
        Column("python_version", STR, nullable=False),
        Column("lock_hash", STR, nullable=False),
        Column("layer", STR, nullable=False),
        Column("packages", INT, nullable=False),
        Column("size_bytes", INT, nullable=False),
        Column("description", STR, nullable=False),
        Column("deprecated", STR, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        Column("updated_at", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("owner_name", "name"),
    )
    with op.batch_alter_table("runs") as runs:
        runs.add_column(Column("environment_lock", STR, nullable=False, server_default=""))
