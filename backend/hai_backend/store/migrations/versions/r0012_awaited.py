"""Tasks store which other tasks must end before they may start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column. Existing tasks wait for no other task."""
    with op.batch_alter_table("tasks") as tasks:
        tasks.add_column(sa.Column("awaited", STR, nullable=False, server_default="[]"))
