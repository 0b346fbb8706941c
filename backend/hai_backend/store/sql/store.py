"""The store on a SQL database: every verb is one question for a reader, or one command for the writer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hai_backend.domain.accounts.user import Quota, Token, User
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Run, Task, TaskEvent
from hai_backend.domain.usage import GroupLoad, Minutes, RankUse, Window
from hai_backend.store.base import AuditPage, AuditQuery, AuditRow, Kept, TaskPage, TaskQuery
from hai_backend.store.sql import admin_tables, audit, queries, records, usage
from hai_backend.store.sql.commands import AddAudit, CreateTask, Do, SaveTask
from hai_backend.store.sql.database import Database
from hai_backend.store.sql.transaction import Transaction


class SqlStore:
    """A Store; see base.py for what each verb promises."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read = database.read

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def confirm(self) -> None:
        await self._database.confirm()

    # tasks
    async def create_task(
        self, task: Task, events: Sequence[TaskEvent], request_id: str = ""
    ) -> Task:
        created: Task = await self._database.write(CreateTask(task, events, request_id))
        return created

    async def task_of_request(self, user: str, request_id: str) -> Task | None:
        return await self._read(lambda c: queries.task_of_request(c, user, request_id))

    async def skip_task_ids(self, newest: int) -> None:
        await self._do(lambda t: t.skip_task_ids(newest))

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

    async def task_runs(self, task_id: int, after: int = 0, most: int | None = None) -> list[Run]:
        return await self._read(lambda c: queries.task_runs(c, task_id, after, most))

    async def task_events(
        self, task_id: int, after: int = 0, most: int | None = None
    ) -> list[tuple[int, TaskEvent]]:
        return await self._read(lambda c: queries.task_events(c, task_id, after, most))

    # nodes and groups
    async def nodes(self) -> list[Node]:
        return await self._read(admin_tables.nodes)

    async def save_nodes(self, nodes: Collection[Node]) -> None:
        if nodes:
            await self._do(lambda t: admin_tables.save_nodes(t, nodes))

    async def delete_nodes(self, names: Collection[str]) -> None:
        if names:
            await self._do(lambda t: admin_tables.delete_nodes(t, names))

    async def groups(self) -> list[Group]:
        return await self._read(admin_tables.groups)

    async def save_group(self, group: Group) -> None:
        await self._do(lambda t: admin_tables.save_group(t, group))

    # users
    async def users(self) -> list[User]:
        return await self._read(admin_tables.users)

    async def save_user(self, user: User) -> None:
        await self._do(lambda t: admin_tables.save_user(t, user))

    async def quotas(self) -> list[Quota]:
        return await self._read(admin_tables.quotas)

    async def save_quota(self, quota: Quota) -> None:
        await self._do(lambda t: admin_tables.save_quota(t, quota))

    async def delete_quota(
        self, subject: str, subject_is_group: bool, group: str, priority: Priority
    ) -> bool:
        deleted = await self._do(
            lambda t: admin_tables.delete_quota(t, subject, subject_is_group, group, priority)
        )
        return bool(deleted)

    async def tokens(self) -> list[Token]:
        return await self._read(admin_tables.tokens)

    async def create_token(self, token: Token) -> Token:
        created: Token = await self._database.write(
            Do(lambda t: admin_tables.create_token(t, token))
        )
        return created

    async def save_token(self, token: Token) -> None:
        await self._do(lambda t: admin_tables.save_token(t, token))

    async def delete_token(self, token_id: int) -> bool:
        return bool(await self._do(lambda t: admin_tables.delete_token(t, token_id)))

    # records
    async def records(self, kind: type[Kept], **equals: object) -> list[Kept]:
        return await self._read(lambda c: records.records(c, kind, equals))

    async def add_record(self, record: object) -> bool:
        return bool(await self._do(lambda t: records.add(t, record)))

    async def save_record(self, record: object) -> None:
        await self._do(lambda t: records.save(t, record))

    async def delete_record(self, record: object) -> bool:
        return bool(await self._do(lambda t: records.remove(t, record)))

    async def delete_records(self, kind: type[object], **equals: object) -> int:
        remove = Do(lambda t: records.remove_those(t, kind, equals))
        deleted: int = await self._database.write(remove)
        return deleted

    # audit
    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        await self._database.write(AddAudit(rows))

    async def audit(self, query: AuditQuery = AuditQuery()) -> AuditPage:
        return await self._read(lambda c: audit.page(c, query))

    # series of use
    async def add_usage(self, minutes: Minutes) -> None:
        await self._do(lambda t: usage.add(t, minutes))

    async def task_usage(
        self, task_id: int, ranks: Collection[int], asked: Window
    ) -> list[RankUse]:
        return await self._read(lambda c: usage.of_task(c, task_id, ranks, asked))

    async def group_usage(self, group: str, asked: Window) -> list[GroupLoad]:
        return await self._read(lambda c: usage.of_groups(c, group, asked))

    async def _do(self, run: Callable[[Transaction], object]) -> object:
        outcome: object = await self._database.write(Do(run))
        return outcome
