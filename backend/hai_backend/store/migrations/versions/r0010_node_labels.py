"""Nodes have labels that operators set."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column. No node has labels yet."""
    with op.batch_alter_table("nodes") as nodes:
        nodes.add_column(sa.Column("labels", STR, nullable=False, server_default="{}"))
