"""The store in memory. It is also the shortest description of what each method of a store does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hai_backend.domain.accounts.user import Quota, Token, User
from hai_backend.domain.errors import Conflict
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Run, Task, TaskEvent, TaskState
from hai_backend.domain.usage import GroupLoad, Minutes, RankUse, Window
from hai_backend.store import paging
from hai_backend.store.base import AuditPage, AuditQuery, AuditRow, Record, TaskPage, TaskQuery
from hai_backend.store.matching import matches
from hai_backend.store.memory.usage import MemoryUsage
from hai_backend.store.sql import audit
from hai_backend.store.sql.guards import name_taken_error
from hai_backend.store.sql.records import key_of

_QuotaKey = tuple[str, bool, str, Priority]


class MemoryStore:
    """Implements store.base.Store. The contents are lost when the process ends."""

    def __init__(self) -> None:
        self._version = 0
        self._last_task_id = 0
        self._tasks: dict[int, Task] = {}
        self._runs: dict[int, dict[int, Run]] = {}
        self._events: dict[int, list[TaskEvent]] = {}
        self._requests: dict[tuple[str, str], int] = {}
        self._nodes: dict[str, Node] = {}
        self._groups: dict[str, Group] = {}
        self._users: dict[str, User] = {}
        self._quotas: dict[_QuotaKey, Quota] = {}
        self._tokens: dict[int, Token] = {}
        self._last_token_id = 0
        self._records: dict[type, dict[tuple[Any, ...], Any]] = {}
        self._audit: list[AuditRow] = []
        self._usage = MemoryUsage()

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def require_leader(self) -> None:
        """Do nothing, because no other server can use this store."""

    # tasks
    async def create_task(
        self, task: Task, events: Sequence[TaskEvent], request_id: str = ""
    ) -> Task:
        first = await self.get_task_by_request(task.user, request_id)
        if first is not None:
            return first
        self._check_name(task)
        self._last_task_id += 1
        new = replace(task, id=self._last_task_id, revision=1)
        if request_id:
            self._requests[task.user, request_id] = new.id
        return self._write(new, events)

    async def get_task_by_request(self, user: str, request_id: str) -> Task | None:
        first = self._requests.get((user, request_id))
        return None if first is None else self._tasks[first]

    async def skip_task_ids(self, newest: int) -> None:
        self._last_task_id = max(self._last_task_id, newest)

    async def save_task(
        self, task: Task, events: Sequence[TaskEvent], records: Sequence[object] = ()
    ) -> Task | None:
        stored = self._tasks.get(task.id)
        if stored is None or stored.revision != task.revision - 1:
            return None
        for record in records:
            await self.save_record(record)
        return self._write(task, events)

    async def get_task(self, task_id: int) -> Task | None:
        return self._tasks.get(task_id)

    async def find_tasks(self, query: TaskQuery) -> TaskPage:
        paging.check_query(query)
        groups = {user.name: user.groups for user in self._users.values()}
        found = [t for t in self._tasks.values() if matches(t, query.filter, groups)]
        found.sort(key=lambda t: paging.position_of(t, query.order_by), reverse=query.descending)
        after = paging.decode_token(query)
        remaining = [task for task in found if _is_after(task, query, after)]
        page = tuple(remaining[: query.page_size])
        token = paging.encode_token(query, page[-1]) if len(remaining) > len(page) else ""
        return TaskPage(page, token, len(found) if query.count else None)

    async def unfinished_tasks(self) -> list[Task]:
        return [t for t in self._tasks.values() if t.state is not TaskState.FINISHED]

    async def changed_tasks(self, after_version: int, limit: int) -> list[Task]:
        changed = [t for t in self._tasks.values() if t.version > after_version]
        return sorted(changed, key=lambda t: t.version)[:limit]

    async def version(self) -> int:
        return self._version

    async def task_runs(self, task_id: int, after: int = 0, limit: int | None = None) -> list[Run]:
        runs = self._runs.get(task_id, {})
        return [run for number, run in runs.items() if number > after][:limit]

    async def task_events(
        self, task_id: int, after: int = 0, limit: int | None = None
    ) -> list[tuple[int, TaskEvent]]:
        return list(enumerate(self._events.get(task_id, ()), 1))[after:][:limit]

    def _check_name(self, task: Task) -> None:
        if task.state is TaskState.FINISHED:
            return
        key = (task.user, task.spec.name)
        for other in self._tasks.values():
            if (other.user, other.spec.name) == key and other.state is not TaskState.FINISHED:
                raise name_taken_error(task, other.id)

    def _write(self, task: Task, events: Sequence[TaskEvent]) -> Task:
        task = replace(task, version=self._next_version())
        self._tasks[task.id] = task
        self._events.setdefault(task.id, []).extend(events)
        if task.run is not None:
            self._runs.setdefault(task.id, {})[task.run.number] = task.run
        return task

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    # nodes and groups
    async def nodes(self) -> list[Node]:
        return sorted(self._nodes.values(), key=lambda n: n.name)

    async def save_nodes(self, nodes: Collection[Node]) -> None:
        if nodes:
            self._next_version()
        self._nodes.update((node.name, node) for node in nodes)

    async def delete_nodes(self, names: Collection[str]) -> None:
        for name in names:
            if self._nodes.pop(name, None) is not None:
                self._next_version()

    async def groups(self) -> list[Group]:
        return sorted(self._groups.values(), key=lambda g: g.name)

    async def save_group(self, group: Group) -> None:
        self._groups[group.name] = group

    # users
    async def users(self) -> list[User]:
        return sorted(self._users.values(), key=lambda u: u.name)

    async def save_user(self, user: User) -> None:
        self._users[user.name] = user

    async def quotas(self) -> list[Quota]:
        return [self._quotas[key] for key in sorted(self._quotas)]

    async def save_quota(self, quota: Quota) -> None:
        key = (quota.subject, quota.subject_is_group, quota.group, quota.priority)
        self._quotas[key] = quota

    async def delete_quota(
        self, subject: str, subject_is_group: bool, group: str, priority: Priority
    ) -> bool:
        return self._quotas.pop((subject, subject_is_group, group, priority), None) is not None

    async def tokens(self) -> list[Token]:
        return [self._tokens[key] for key in sorted(self._tokens)]

    async def create_token(self, token: Token) -> Token:
        new = replace(token, id=self._last_token_id + 1)
        self._check_secret(new)
        self._tokens[new.id], self._last_token_id = new, new.id
        return new

    async def save_token(self, token: Token) -> None:
        self._check_secret(token)
        self._tokens[token.id] = token

    async def delete_token(self, token_id: int) -> bool:
        return self._tokens.pop(token_id, None) is not None

    def _check_secret(self, token: Token) -> None:
        for other in self._tokens.values():
            if other.secret_sha256 == token.secret_sha256 and other.id != token.id:
                raise Conflict(f"token {other.id} has the same secret; make a new one")

    # records
    async def records(self, kind: type[Record], **equals: object) -> list[Record]:
        records = self._records.get(kind, {})
        return [records[key] for key in sorted(records) if _has_values(records[key], equals)]

    async def add_record(self, record: object) -> bool:
        if key_of(record) in self._records.get(type(record), {}):
            return False
        await self.save_record(record)
        return True

    async def save_record(self, record: object) -> None:
        self._records.setdefault(type(record), {})[key_of(record)] = record

    async def delete_record(self, record: object) -> bool:
        return self._records.get(type(record), {}).pop(key_of(record), None) is not None

    async def delete_records(self, kind: type[object], **equals: object) -> int:
        records = self._records.get(kind, {})
        keys = [key for key, record in records.items() if _has_values(record, equals)]
        for key in keys:
            del records[key]
        return len(keys)

    # audit
    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        self._audit.extend(rows)

    async def audit(self, query: AuditQuery = AuditQuery()) -> AuditPage:
        return audit.read_page_in_memory(self._audit, query)

    # usage over time
    async def add_usage(self, minutes: Minutes) -> None:
        self._usage.add(minutes)

    async def task_usage(
        self, task_id: int, ranks: Collection[int], window: Window
    ) -> list[RankUse]:
        return self._usage.task_usage(task_id, ranks, window)

    async def group_usage(self, group: str, window: Window) -> list[GroupLoad]:
        return self._usage.group_usage(group, window)


def _is_after(task: Task, query: TaskQuery, after: paging.Position | None) -> bool:
    if after is None:
        return True
    position = paging.position_of(task, query.order_by)
    return position < after if query.descending else position > after


def _has_values(record: object, equals: Mapping[str, object]) -> bool:
    return all(getattr(record, name) == value for name, value in equals.items())
