"""Runs store how long their checkpoints took to load, to save and to write to disk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the columns. The times of existing runs are unknown."""
    with op.batch_alter_table("runs") as runs:
        for name in ("load_seconds", "save_seconds", "write_seconds"):
            runs.add_column(sa.Column(name, sa.Float(53), nullable=True))
