"""Tables of tasks, tags, runs, ranks and events, with the indexes that lists of tasks use."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index, false, literal_column
from sqlalchemy.orm import Mapped, mapped_column

from hai_backend.store.tables.base import Base, table


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
    tags: Mapped[str]  # JSON, so that one row describes a task; queries by tag use task_tags
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
    run_number: Mapped[int]  # number of the current or last run, 0 before the first run
    event_count: Mapped[int]
    revision: Mapped[int]
    version: Mapped[int]
    spec: Mapped[str]  # JSON
    request_id: Mapped[str]
    progress: Mapped[str] = mapped_column(server_default="{}")  # JSON
    awaited: Mapped[str] = mapped_column(server_default="[]")  # JSON


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
    acknowledged: Mapped[bool]  # read by servers of earlier releases
    asked_at: Mapped[float | None]
    yielded: Mapped[bool] = mapped_column(server_default=false())
    environment_lock: Mapped[str] = mapped_column(server_default="")
    killed_at: Mapped[float | None]
    acknowledged_at: Mapped[float | None]
    load_seconds: Mapped[float | None]
    save_seconds: Mapped[float | None]
    write_seconds: Mapped[float | None]


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
    silent_since: Mapped[float | None]
    saved_bytes: Mapped[int] = mapped_column(server_default="0")
    state_bytes: Mapped[int] = mapped_column(server_default="0")


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


TASKS = table(TaskRow)
TAGS = table(TagRow)
RUNS = table(RunRow)
RANKS = table(RankRow)
EVENTS = table(EventRow)

# These conditions have no parameters, because the databases use a partial index only for a constant condition.
UNFINISHED = TASKS.c.state != literal_column("'FINISHED'")
HAS_REQUEST_ID = TASKS.c.request_id != literal_column("''")


def _partial_index(name: str, *columns: str, where: object, unique: bool = True) -> Index:
    dialects: dict[str, Any] = {"sqlite_where": where, "postgresql_where": where}
    return Index(name, *(TASKS.c[column] for column in columns), unique=unique, **dialects)


_partial_index("tasks_unfinished_name", "name", "user_name", where=UNFINISHED)
_partial_index("tasks_request", "request_id", "user_name", where=HAS_REQUEST_ID)
_partial_index("tasks_unfinished", "id", where=UNFINISHED, unique=False)
Index("tasks_version", TASKS.c.version)
for _order in ("user_name", "created_at", "priority", "name", "state"):
    Index(f"tasks_{_order}", TASKS.c[_order], TASKS.c.id)
Index("task_tags_tag", TAGS.c.tag, TAGS.c.task_id)
