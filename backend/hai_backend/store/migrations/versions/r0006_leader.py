"""The table `leader` names the server that leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column

revision = "0006"
down_revision = "0005"

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
FLOAT = sa.Float(53)


def upgrade() -> None:
    """Add the table and its only row. No server has led yet."""
    leader = op.create_table(
        "leader",
        Column("id", INT, autoincrement=False, nullable=False),
        Column("epoch", INT, nullable=False),
        Column("address", STR, nullable=False),
        Column("backend", INT, nullable=False),
        Column("renewed_at", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.bulk_insert(leader, [{"id": 1, "epoch": 0, "address": "", "backend": 0, "renewed_at": 0.0}])
