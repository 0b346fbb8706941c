"""Runs store when they acknowledged the request to leave, and ranks how much of their state is saved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns. For runs that have acknowledged already, convert.py uses the time of the request."""
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("acknowledged_at", sa.Float(53), nullable=True))
    with op.batch_alter_table("ranks") as ranks:
        for name in ("saved_bytes", "state_bytes"):
            column = sa.Column(name, INT, nullable=False, server_default="0")
            ranks.add_column(column)
