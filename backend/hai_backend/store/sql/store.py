"""A store on an SQL database. Each method runs a query on a reader connection or sends a command to the writer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from hai_backend.domain.accounts.user import Quota, Token, User
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Run, Task, TaskEvent
from hai_backend.domain.usage import GroupLoad, Minutes, RankUse, Window
from hai_backend.store.base import AuditPage, AuditQuery, AuditRow, Record, TaskPage, TaskQuery
from hai_backend.store.sql import admin_tables, audit, queries, records, usage
from hai_backend.store.sql.commands import AddAudit, Command, CreateTask, Execute, SaveTask
from hai_backend.store.sql.transaction import Transaction

Result = TypeVar("Result")


class Database(Protocol):
    """Implemented by databases/sqlite.py and databases/postgres.py. One writer commits queued commands in batches."""

    async def open(self) -> None:
        """Connect to the database, create or migrate the schema, and start the writer."""

    async def close(self) -> None:
        """Execute the queued commands, then close all connections."""

    async def read(self, query: Callable[[Connection], Result]) -> Result:
        """Run `query` within one snapshot of the committed state."""

    async def write(self, command: Command) -> Any:
        """Queue a command. Return its result when the changes are durable."""

    async def require_leader(self) -> None:
        """Raise Deposed if another server has become the leader."""


class SqlStore:
    """Implements store.base.Store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read = database.read

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def require_leader(self) -> None:
        await self._database.require_leader()

    # tasks
    async def create_task(
        self, task: Task, events: Sequence[TaskEvent], request_id: str = ""
    ) -> Task:
        created: Task = await self._database.write(CreateTask(task, events, request_id))
        return created

    async def get_task_by_request(self, user: str, request_id: str) -> Task | None:
        return await self._read(lambda c: queries.get_task_by_request(c, user, request_id))

    async def skip_task_ids(self, newest: int) -> None:
        await self._execute(lambda t: t.skip_task_ids(newest))

    async def save_task(
        self, task: Task, events: Sequence[TaskEvent], records: Sequence[object] = ()
    ) -> Task | None:
        saved: Task | None = await self._database.write(SaveTask(task, events, records))
        return saved

    async def get_task(self, task_id: int) -> Task | None:
        return await self._read(lambda c: queries.get_task(c, task_id))

    async def find_tasks(self, query: TaskQuery) -> TaskPage:
        return await self._read(lambda c: queries.find_tasks(c, query))

    async def unfinished_tasks(self) -> list[Task]:
        return await self._read(queries.unfinished_tasks)

    async def changed_tasks(self, after_version: int, limit: int) -> list[Task]:
        return await self._read(lambda c: queries.changed_tasks(c, after_version, limit))

    async def version(self) -> int:
        return await self._read(queries.version)

    async def task_runs(self, task_id: int, after: int = 0, limit: int | None = None) -> list[Run]:
        return await self._read(lambda c: queries.task_runs(c, task_id, after, limit))

    async def task_events(
        self, task_id: int, after: int = 0, limit: int | None = None
    ) -> list[tuple[int, TaskEvent]]:
        return await self._read(lambda c: queries.task_events(c, task_id, after, limit))

    # nodes and groups
    async def nodes(self) -> list[Node]:
        return await self._read(admin_tables.nodes)

    async def save_nodes(self, nodes: Collection[Node]) -> None:
        if nodes:
            await self._execute(lambda t: admin_tables.save_nodes(t, nodes))

    async def delete_nodes(self, names: Collection[str]) -> None:
        if names:
            await self._execute(lambda t: admin_tables.delete_nodes(t, names))

    async def groups(self) -> list[Group]:
        return await self._read(admin_tables.groups)

    async def save_group(self, group: Group) -> None:
        await self._execute(lambda t: admin_tables.save_group(t, group))

    # users
    async def users(self) -> list[User]:
        return await self._read(admin_tables.users)

    async def save_user(self, user: User) -> None:
        await self._execute(lambda t: admin_tables.save_user(t, user))

    async def quotas(self) -> list[Quota]:
        return await self._read(admin_tables.quotas)

    async def save_quota(self, quota: Quota) -> None:
        await self._execute(lambda t: admin_tables.save_quota(t, quota))

    async def delete_quota(
        self, subject: str, subject_is_group: bool, group: str, priority: Priority
    ) -> bool:
        deleted = await self._execute(
            lambda t: admin_tables.delete_quota(t, subject, subject_is_group, group, priority)
        )
        return bool(deleted)

    async def tokens(self) -> list[Token]:
        return await self._read(admin_tables.tokens)

    async def create_token(self, token: Token) -> Token:
        created: Token = await self._database.write(
            Execute(lambda t: admin_tables.create_token(t, token))
        )
        return created

    async def save_token(self, token: Token) -> None:
        await self._execute(lambda t: admin_tables.save_token(t, token))

    async def delete_token(self, token_id: int) -> bool:
        return bool(await self._execute(lambda t: admin_tables.delete_token(t, token_id)))

    # records
    async def records(self, kind: type[Record], **equals: object) -> list[Record]:
        return await self._read(lambda c: records.find_records(c, kind, equals))

    async def add_record(self, record: object) -> bool:
        return bool(await self._execute(lambda t: records.add_record(t, record)))

    async def save_record(self, record: object) -> None:
        await self._execute(lambda t: records.save_record(t, record))

    async def delete_record(self, record: object) -> bool:
        return bool(await self._execute(lambda t: records.delete_record(t, record)))

    async def delete_records(self, kind: type[object], **equals: object) -> int:
        command = Execute(lambda t: records.delete_records(t, kind, equals))
        deleted: int = await self._database.write(command)
        return deleted

    # audit
    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        await self._database.write(AddAudit(rows))

    async def audit(self, query: AuditQuery = AuditQuery()) -> AuditPage:
        return await self._read(lambda c: audit.read_page(c, query))

    # usage over time
    async def add_usage(self, minutes: Minutes) -> None:
        await self._execute(lambda t: usage.add_usage(t, minutes))

    async def task_usage(
        self, task_id: int, ranks: Collection[int], window: Window
    ) -> list[RankUse]:
        return await self._read(lambda c: usage.task_usage(c, task_id, ranks, window))

    async def group_usage(self, group: str, window: Window) -> list[GroupLoad]:
        return await self._read(lambda c: usage.group_usage(c, group, window))

    async def _execute(self, function: Callable[[Transaction], object]) -> object:
        result: object = await self._database.write(Execute(function))
        return result
