"""Tasks store checkpoints, starts and lost work. Runs store when they were asked to suspend and if they yielded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns. Existing rows have no measurements."""
    with op.batch_alter_table("tasks") as tasks:
        tasks.add_column(sa.Column("progress", STR, nullable=False, server_default="{}"))
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("asked_at", sa.Float(53), nullable=True))
        runs.add_column(
            sa.Column("yielded", sa.Boolean(), nullable=False, server_default=sa.false())
        )
