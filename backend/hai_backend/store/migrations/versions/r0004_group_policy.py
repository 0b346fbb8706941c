"""Node groups may have a scheduling policy of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column. Existing groups use the policy of the server."""
    with op.batch_alter_table("node_groups") as groups:
        groups.add_column(sa.Column("policy", STR, nullable=False, server_default=""))
