"""Ranks store which GPUs of their node they use, because tasks that share a node must not share GPUs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column. It is empty for existing ranks, which keep the GPUs with which they were started."""
    with op.batch_alter_table("ranks") as ranks:
        ranks.add_column(sa.Column("gpus", STR, nullable=False, server_default="[]"))
