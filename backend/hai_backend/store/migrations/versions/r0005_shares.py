"""User groups may have shares of node groups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column

revision = "0005"
down_revision = "0004"

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table. User groups without a share together form one part of the node group."""
    op.create_table(
        "shares",
        Column("user_group", STR, nullable=False),
        Column("group_name", STR, nullable=False),
        Column("guaranteed", INT, nullable=False),
        Column("weight", INT, nullable=False),
        Column("at_most", INT, nullable=True),
        sa.PrimaryKeyConstraint("user_group", "group_name"),
    )
