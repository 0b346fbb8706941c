"""The tables of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column

revision = "0001"
down_revision = None

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STR = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
FLOAT = sa.Float(53)
BOOL = sa.Boolean()
META = sa.table("meta", *(sa.column(c) for c in ("id", "version", "last_task_id", "last_token_id")))


def upgrade() -> None:
    """Create all tables, and the row of counters."""
    op.create_table(
        "audit",
        Column("id", INT, nullable=False),
        Column("time", FLOAT, nullable=False),
        Column("actor", STR, nullable=False),
        Column("method", STR, nullable=False),
        Column("resource", STR, nullable=False),
        Column("what", STR, nullable=False),
        Column("code", STR, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "meta",
        Column("id", INT, autoincrement=False, nullable=False),
        Column("version", INT, nullable=False),
        Column("last_task_id", INT, nullable=False),
        Column("last_token_id", INT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "node_groups",
        Column("name", STR, nullable=False),
        Column("packed", BOOL, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "nodes",
        Column("name", STR, nullable=False),
        Column("group_name", STR, nullable=False),
        Column("zone", STR, nullable=False),
        Column("state", STR, nullable=False),
        Column("cordoned", BOOL, nullable=False),
        Column("gpus", INT, nullable=False),
        Column("gpus_simulated", BOOL, nullable=False),
        Column("cpus", INT, nullable=False),
        Column("memory_bytes", INT, nullable=False),
        Column("topology", STR, nullable=False),
        Column("reason", STR, nullable=False),
        Column("updated_at", FLOAT, nullable=False),
        Column("version", INT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "quotas",
        Column("subject", STR, nullable=False),
        Column("subject_is_group", BOOL, nullable=False),
        Column("group_name", STR, nullable=False),
        Column("priority", INT, autoincrement=False, nullable=False),
        Column("nodes", INT, nullable=False),
        Column("expires_at", FLOAT, nullable=True),
        sa.PrimaryKeyConstraint("subject", "subject_is_group", "group_name", "priority"),
    )
    op.create_table(
        "ranks",
        Column("task_id", INT, autoincrement=False, nullable=False),
        Column("run", INT, autoincrement=False, nullable=False),
        Column("index", INT, autoincrement=False, nullable=False),
        Column("node", STR, nullable=False),
        Column("state", STR, nullable=False),
        Column("role", STR, nullable=False),
        Column("address", STR, nullable=False),
        Column("free_port", INT, nullable=False),
        Column("exit_code", INT, nullable=True),
        Column("last_lines", STR, nullable=False),
        Column("started_at", FLOAT, nullable=True),
        Column("ended_at", FLOAT, nullable=True),
        sa.PrimaryKeyConstraint("task_id", "run", "index"),
    )
    op.create_table(
        "runs",
        Column("task_id", INT, autoincrement=False, nullable=False),
        Column("number", INT, autoincrement=False, nullable=False),
        Column("state", STR, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        Column("priority", INT, nullable=False),
        Column("whole_life_state", INT, nullable=False),
        Column("stop_code", INT, nullable=False),
        Column("reason", STR, nullable=False),
        Column("suspended_for", INT, nullable=False),
        Column("started_at", FLOAT, nullable=True),
        Column("ended_at", FLOAT, nullable=True),
        Column("deadline", FLOAT, nullable=True),
        Column("acknowledged", BOOL, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "number"),
    )
    op.create_table(
        "task_events",
        Column("task_id", INT, autoincrement=False, nullable=False),
        Column("sequence", INT, autoincrement=False, nullable=False),
        Column("time", FLOAT, nullable=False),
        Column("actor", STR, nullable=False),
        Column("kind", STR, nullable=False),
        Column("reason", STR, nullable=False),
        Column("run", INT, nullable=False),
        Column("rank", INT, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "sequence"),
    )
    op.create_table(
        "task_tags",
        Column("task_id", INT, autoincrement=False, nullable=False),
        Column("tag", STR, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "tag"),
    )
    op.create_index("task_tags_tag", "task_tags", ["tag", "task_id"], unique=False)
    op.create_table(
        "tasks",
        Column("id", INT, autoincrement=False, nullable=False),
        Column("user_name", STR, nullable=False),
        Column("name", STR, nullable=False),
        Column("task_type", STR, nullable=False),
        Column("group_name", STR, nullable=False),
        Column("shared", BOOL, nullable=False),
        Column("state", STR, nullable=False),
        Column("priority", INT, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        Column("custom_rank", FLOAT, nullable=False),
        Column("tags", STR, nullable=False),
        Column("starred", BOOL, nullable=False),
        Column("whole_life_state", INT, nullable=False),
        Column("outcome", STR, nullable=True),
        Column("wanted_outcome", STR, nullable=True),
        Column("reason", STR, nullable=False),
        Column("held", BOOL, nullable=False),
        Column("not_before", FLOAT, nullable=False),
        Column("suspend_count", INT, nullable=False),
        Column("failure_count", INT, nullable=False),
        Column("node_failure_count", INT, nullable=False),
        Column("launch_failure_count", INT, nullable=False),
        Column("run_seconds", FLOAT, nullable=False),
        Column("started_at", FLOAT, nullable=True),
        Column("finished_at", FLOAT, nullable=True),
        Column("run_number", INT, nullable=False),
        Column("event_count", INT, nullable=False),
        Column("revision", INT, nullable=False),
        Column("version", INT, nullable=False),
        Column("spec", STR, nullable=False),
        Column("request_id", STR, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("tasks_created_at", "tasks", ["created_at", "id"], unique=False)
    op.create_index("tasks_name", "tasks", ["name", "id"], unique=False)
    op.create_index("tasks_priority", "tasks", ["priority", "id"], unique=False)
    op.create_index(
        "tasks_request",
        "tasks",
        ["request_id", "user_name"],
        unique=True,
        sqlite_where=sa.text("request_id != ''"),
        postgresql_where=sa.text("request_id != ''"),
    )
    op.create_index("tasks_state", "tasks", ["state", "id"], unique=False)
    op.create_index(
        "tasks_unfinished",
        "tasks",
        ["id"],
        unique=False,
        sqlite_where=sa.text("state != 'FINISHED'"),
        postgresql_where=sa.text("state != 'FINISHED'"),
    )
    op.create_index(
        "tasks_unfinished_name",
        "tasks",
        ["name", "user_name"],
        unique=True,
        sqlite_where=sa.text("state != 'FINISHED'"),
        postgresql_where=sa.text("state != 'FINISHED'"),
    )
    op.create_index("tasks_user_name", "tasks", ["user_name", "id"], unique=False)
    op.create_index("tasks_version", "tasks", ["version"], unique=False)
    op.create_table(
        "tokens",
        Column("id", INT, autoincrement=False, nullable=False),
        Column("user_name", STR, nullable=False),
        Column("scope", STR, nullable=False),
        Column("secret_sha256", STR, nullable=False),
        Column("description", STR, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        Column("expires_at", FLOAT, nullable=True),
        Column("revoked", BOOL, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret_sha256"),
    )
    op.create_table(
        "user_groups",
        Column("group_name", STR, nullable=False),
        Column("user_name", STR, nullable=False),
        sa.PrimaryKeyConstraint("group_name", "user_name"),
    )
    op.create_table(
        "users",
        Column("name", STR, nullable=False),
        Column("role", STR, nullable=False),
        Column("groups", STR, nullable=False),
        Column("active", BOOL, nullable=False),
        Column("rights", STR, nullable=False),
        Column("uid", INT, nullable=False),
        Column("created_at", FLOAT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.execute(META.insert().values(id=1, version=0, last_task_id=0, last_token_id=0))
