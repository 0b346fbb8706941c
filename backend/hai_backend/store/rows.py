"""The tables, typed. This module is a table itself: one class per table, one line per column.

Columns that are filtered or ordered by stand on their own; a task's spec is a JSON text. Names are `user_name` and
`group_name` because `user` and `group` mean something else to PostgreSQL. Text compares by code point everywhere
(collation C on PostgreSQL), so that both databases and Python order alike. Classes exist for their types and for
alembic: the hot paths use the Table objects at the end and no unit of work.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import BigInteger, Float, Index, Integer, Table, Text, false, literal_column
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_Int = BigInteger().with_variant(Integer(), "sqlite")  # INTEGER is what makes a rowid in SQLite
_Str = Text().with_variant(Text(collation="C"), "postgresql")


class Base(DeclarativeBase):
    """Owner of the metadata that alembic compares with."""

    type_annotation_map = {int: _Int, float: Float(53), str: _Str}  # noqa: RUF012


class MetaRow(Base):
    """One row of counters. Every write locks it first, so versions are allotted in the order of commits."""

    __tablename__ = "meta"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int]
    last_task_id: Mapped[int]
    last_token_id: Mapped[int]


class TaskRow(Base):
    __tablename__ = "tasks"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user_name: Mapped[str]
    name: Mapped[str]
    task_type: Mapped[str]
    group_name: Mapped[str]
    shared: Mapped[bool]
    state: Mapped[str]
    priority: Mapped[int]
    created_at: Mapped[float]
    custom_rank: Mapped[float]
    tags: Mapped[str]  # JSON, for reading; the table task_tags is for finding
    starred: Mapped[bool]
    whole_life_state: Mapped[int]
    outcome: Mapped[str | None]
    wanted_outcome: Mapped[str | None]
    reason: Mapped[str]
    held: Mapped[bool]
    not_before: Mapped[float]
    suspend_count: Mapped[int]
    failure_count: Mapped[int]
    node_failure_count: Mapped[int]
    launch_failure_count: Mapped[int]
    run_seconds: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    run_number: Mapped[int]  # current or last run; 0: none
    event_count: Mapped[int]
    revision: Mapped[int]
    version: Mapped[int]
    spec: Mapped[str]  # JSON
    request_id: Mapped[str]
    progress: Mapped[str] = mapped_column(server_default="{}")  # JSON


class TagRow(Base):
    __tablename__ = "task_tags"
    task_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tag: Mapped[str] = mapped_column(primary_key=True)


class RunRow(Base):
    __tablename__ = "runs"
    task_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str]
    created_at: Mapped[float]
    priority: Mapped[int]
    whole_life_state: Mapped[int]
    stop_code: Mapped[int]
    reason: Mapped[str]
    suspended_for: Mapped[int]
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    deadline: Mapped[float | None]
    acknowledged: Mapped[bool]
    asked_at: Mapped[float | None]
    yielded: Mapped[bool] = mapped_column(server_default=false())
    environment_lock: Mapped[str] = mapped_column(server_default="")


class RankRow(Base):
    __tablename__ = "ranks"
    task_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    run: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node: Mapped[str]
    state: Mapped[str]
    role: Mapped[str]
    address: Mapped[str]
    free_port: Mapped[int]
    exit_code: Mapped[int | None]
    last_lines: Mapped[str]
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    gpus: Mapped[str] = mapped_column(server_default="[]")  # JSON


class EventRow(Base):
    __tablename__ = "task_events"
    task_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    time: Mapped[float]
    actor: Mapped[str]
    kind: Mapped[str]
    reason: Mapped[str]
    run: Mapped[int]
    rank: Mapped[int]


class NodeRow(Base):
    __tablename__ = "nodes"
    name: Mapped[str] = mapped_column(primary_key=True)
    group_name: Mapped[str]
    zone: Mapped[str]
    state: Mapped[str]
    cordoned: Mapped[bool]
    gpus: Mapped[int]
    gpus_simulated: Mapped[bool]
    cpus: Mapped[int]
    memory_bytes: Mapped[int]
    topology: Mapped[str]  # JSON
    reason: Mapped[str]
    updated_at: Mapped[float]
    version: Mapped[int]


class GroupRow(Base):
    __tablename__ = "node_groups"
    name: Mapped[str] = mapped_column(primary_key=True)
    packed: Mapped[bool]
    policy: Mapped[str] = mapped_column(server_default="")  # JSON, or empty


class UserRow(Base):
    __tablename__ = "users"
    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str]
    groups: Mapped[str]  # JSON, for reading; the table user_groups is for finding
    active: Mapped[bool]
    rights: Mapped[str]  # JSON
    uid: Mapped[int]
    created_at: Mapped[float]


class MemberRow(Base):
    __tablename__ = "user_groups"
    group_name: Mapped[str] = mapped_column(primary_key=True)
    user_name: Mapped[str] = mapped_column(primary_key=True)


class QuotaRow(Base):
    __tablename__ = "quotas"
    subject: Mapped[str] = mapped_column(primary_key=True)
    subject_is_group: Mapped[bool] = mapped_column(primary_key=True)
    group_name: Mapped[str] = mapped_column(primary_key=True)
    priority: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    nodes: Mapped[int]
    expires_at: Mapped[float | None]


class ShareRow(Base):
    __tablename__ = "shares"
    user_group: Mapped[str] = mapped_column(primary_key=True)
    group_name: Mapped[str] = mapped_column(primary_key=True)
    guaranteed: Mapped[int]
    weight: Mapped[int]
    at_most: Mapped[int | None]  # the limit; that word means something else to SQL


class TokenRow(Base):
    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user_name: Mapped[str]
    scope: Mapped[str]
    secret_sha256: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str]
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    revoked: Mapped[bool]
    holder: Mapped[str] = mapped_column(server_default="")  # empty: the user


class GrantRow(Base):
    __tablename__ = "grants"
    subject: Mapped[str] = mapped_column(primary_key=True)
    subject_is_group: Mapped[bool] = mapped_column(primary_key=True)
    right_name: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[float | None]


class ImageRow(Base):
    __tablename__ = "images"
    name: Mapped[str] = mapped_column(primary_key=True)
    reference: Mapped[str]
    user_groups: Mapped[str]  # JSON
    is_default: Mapped[bool]
    description: Mapped[str]


class RegistryRow(Base):
    __tablename__ = "registries"
    prefix: Mapped[str] = mapped_column(primary_key=True)
    username: Mapped[str]
    password: Mapped[str]
    plain_http: Mapped[bool]
    pull_secret: Mapped[str]


class MountRuleRow(Base):
    __tablename__ = "mount_rules"
    owners: Mapped[str]  # JSON
    mount_path: Mapped[str]
    source: Mapped[str]
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    action: Mapped[str]
    kind: Mapped[str]
    host_type: Mapped[str]
    attributes: Mapped[str]  # JSON
    conditions: Mapped[str]  # JSON
    read_only: Mapped[bool]
    mount_code: Mapped[int]


class PortRow(Base):
    __tablename__ = "ports"
    node_port: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user_name: Mapped[str]
    task_name: Mapped[str]
    service: Mapped[str]
    created_at: Mapped[float]


class ArtifactRow(Base):
    __tablename__ = "artifacts"
    space: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    owner_name: Mapped[str]
    type: Mapped[str]
    location: Mapped[str]
    description: Mapped[str]
    created_at: Mapped[float]
    updated_at: Mapped[float]


class TaskArtifactRow(Base):
    __tablename__ = "task_artifacts"
    task_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    direction: Mapped[str] = mapped_column(primary_key=True)
    space: Mapped[str]
    name: Mapped[str]
    version: Mapped[str]


class DatasetRow(Base):
    __tablename__ = "datasets"
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str]
    owner_name: Mapped[str]
    user_group: Mapped[str]
    visibility: Mapped[str]
    size_bytes: Mapped[int]
    description: Mapped[str]
    created_at: Mapped[float]


class EnvironmentRow(Base):
    __tablename__ = "environments"
    owner_name: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    message: Mapped[str]
    visibility: Mapped[str]
    user_group: Mapped[str]
    parent: Mapped[str]
    python_version: Mapped[str]
    lock_hash: Mapped[str]
    layer: Mapped[str]
    packages: Mapped[int]
    size_bytes: Mapped[int]
    description: Mapped[str]
    deprecated: Mapped[str]
    created_at: Mapped[float]
    updated_at: Mapped[float]


class MessageRow(Base):
    __tablename__ = "messages"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    subject: Mapped[str]
    subject_is_group: Mapped[bool]
    text: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[float]
    expires_at: Mapped[float | None]


class AuditEntry(Base):
    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[float]
    actor: Mapped[str]
    method: Mapped[str]
    resource: Mapped[str]
    what: Mapped[str]
    code: Mapped[str]


class LeaderRow(Base):
    """One row: who leads. `leader/` renews it; a write of an earlier epoch is refused (store/transaction.py)."""

    __tablename__ = "leader"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int]  # grows with every leader
    address: Mapped[str]  # empty: it has resigned
    backend: Mapped[int]  # the database process of the session that holds the lock
    renewed_at: Mapped[float]  # by the database's clock


def _table(row: type[Base]) -> Table:
    return cast(Table, row.__table__)


META, TASKS, TAGS = _table(MetaRow), _table(TaskRow), _table(TagRow)
RUNS, RANKS, EVENTS = _table(RunRow), _table(RankRow), _table(EventRow)
NODES, GROUPS = _table(NodeRow), _table(GroupRow)
USERS, MEMBERS, QUOTAS = _table(UserRow), _table(MemberRow), _table(QuotaRow)
SHARES, TOKENS = _table(ShareRow), _table(TokenRow)
GRANTS, IMAGES, REGISTRIES = _table(GrantRow), _table(ImageRow), _table(RegistryRow)
ARTIFACTS, TASK_ARTIFACTS = _table(ArtifactRow), _table(TaskArtifactRow)
DATASETS, MESSAGES = _table(DatasetRow), _table(MessageRow)
MOUNT_RULES, PORTS = _table(MountRuleRow), _table(PortRow)
ENVIRONMENTS = _table(EnvironmentRow)
AUDIT, LEADER = _table(AuditEntry), _table(LeaderRow)

# Constants stand in the SQL text, not in parameters: only so can a partial index serve the query.
UNFINISHED = TASKS.c.state != literal_column("'FINISHED'")
HAS_REQUEST_ID = TASKS.c.request_id != literal_column("''")


def _partial(name: str, *columns: str, where: object, unique: bool = True) -> Index:
    dialects: dict[str, Any] = {"sqlite_where": where, "postgresql_where": where}
    return Index(name, *(TASKS.c[c] for c in columns), unique=unique, **dialects)


_partial("tasks_unfinished_name", "name", "user_name", where=UNFINISHED)
_partial("tasks_request", "request_id", "user_name", where=HAS_REQUEST_ID)
_partial("tasks_unfinished", "id", where=UNFINISHED, unique=False)
Index("tasks_version", TASKS.c.version)
for _order in ("user_name", "created_at", "priority", "name", "state"):
    Index(f"tasks_{_order}", TASKS.c[_order], TASKS.c.id)
Index("task_tags_tag", TAGS.c.tag, TAGS.c.task_id)
