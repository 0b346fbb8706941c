"""Runs store when their ranks were first killed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the column. If ranks are being killed now, the timeline reports it once more."""
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("killed_at", sa.Float(), nullable=True))
