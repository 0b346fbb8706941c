"""Tokens may belong to a container; tables of records: rights, mount rules, images, ports and more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column

revision = "0007"
down_revision = "0006"

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
FLOAT = sa.Float(53)


def upgrade() -> None:
    """Add the tables and the column. This function is long because it lists all columns."""
    op.add_column("tokens", Column("holder", STR, nullable=False, server_default=""))
    op.create_table(
        "grants",
        Column("subject", STR, nullable=False),
        Column("subject_is_group", sa.Boolean, nullable=False),
        Column("right_name", STR, nullable=False),
        Column("expires_at", FLOAT, nullable=True),
        sa.PrimaryKeyConstraint("subject", "subject_is_group", "right_name"),
    )
    op.create_table(
        "mount_rules",
        Column("owners", STR, nullable=False),
        Column("mount_path", STR, nullable=False),
        Column("source", STR, nullable=False),
        Column("id", INT, nullable=False),
        Column("action", STR, nullable=False),
        Column("kind", STR, nullable=False),
        Column("host_type", STR, nullable=False),
        Column("attributes", STR, nullable=False),
        Column("conditions", STR, nullable=False),
        Column("read_only", sa.Boolean, nullable=False),
        Column("mount_code", INT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "ports",
        Column("node_port", INT, nullable=False),
        Column("user_name", STR, nullable=False),
        Column("task_name", STR, nullable=False),
        Column("service", STR, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("node_port"),
    )
    op.create_table(
        "artifacts",
        Column("space", STR, nullable=False),
        Column("name", STR, nullable=False),
        Column("version", STR, nullable=False),
        Column("owner_name", STR, nullable=False),
        Column("type", STR, nullable=False),
        Column("location", STR, nullable=False),
        Column("description", STR, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        Column("updated_at", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("space", "name", "version"),
    )
    op.create_table(
        "task_artifacts",
        Column("task_id", INT, nullable=False),
        Column("direction", STR, nullable=False),
        Column("space", STR, nullable=False),
        Column("name", STR, nullable=False),
        Column("version", STR, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "direction"),
    )
    op.create_table(
        "datasets",
        Column("name", STR, nullable=False),
        Column("version", STR, nullable=False),
        Column("path", STR, nullable=False),
        Column("owner_name", STR, nullable=False),
        Column("user_group", STR, nullable=False),
        Column("visibility", STR, nullable=False),
        Column("size_bytes", INT, nullable=False),
        Column("description", STR, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("name", "version"),
    )
    op.create_table(
        "messages",
        Column("id", INT, nullable=False),
        Column("subject", STR, nullable=False),
        Column("subject_is_group", sa.Boolean, nullable=False),
        Column("text", STR, nullable=False),
        Column("author", STR, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        Column("expires_at", FLOAT, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "images",
        Column("name", STR, nullable=False),
        Column("reference", STR, nullable=False),
        Column("user_groups", STR, nullable=False),
        Column("is_default", sa.Boolean, nullable=False),
        Column("description", STR, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "registries",
        Column("prefix", STR, nullable=False),
        Column("username", STR, nullable=False),
        Column("password", STR, nullable=False),
        Column("plain_http", sa.Boolean, nullable=False),
        Column("pull_secret", STR, nullable=False),
        sa.PrimaryKeyConstraint("prefix"),
    )
