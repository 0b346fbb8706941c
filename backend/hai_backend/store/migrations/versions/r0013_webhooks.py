"""Tables of webhooks and of notices that are not delivered yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column

revision = "0013"
down_revision = "0012"

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
FLOAT = sa.Float(53)


def upgrade() -> None:
    """Add the empty tables."""
    op.create_table(
        "webhooks",
        Column("owner_name", STR, nullable=False),
        Column("name", STR, nullable=False),
        Column("url", STR, nullable=False),
        Column("news", STR, nullable=False),
        Column("format", STR, nullable=False),
        Column("tag", STR, nullable=False),
        Column("secret", STR, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("owner_name", "name"),
    )
    op.create_table(
        "notices",
        Column("owner_name", STR, nullable=False),
        Column("webhook", STR, nullable=False),
        Column("task_id", INT, nullable=False),
        Column("run", INT, nullable=False),
        Column("news", STR, nullable=False),
        Column("time", FLOAT, nullable=False),
        Column("facts", STR, nullable=False),
        sa.PrimaryKeyConstraint("owner_name", "webhook", "task_id", "run", "news"),
    )
