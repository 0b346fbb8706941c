"""Ranks store since when their agents are silent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column. The server detects silent agents again after its start."""
    with op.batch_alter_table("ranks") as ranks:
        ranks.add_column(sa.Column("silent_since", sa.Float(53), nullable=True))
