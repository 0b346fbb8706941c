"""The store's interface: a page of verbs in domain words. sql/store.py and memory/store.py implement it and pass one
suite.

Rules that every implementation keeps:
- Nothing returns before it is durable.
- A task is written whole (row, current run, its ranks, new events) under the guard of its revision.
- Every write of a task or node gets the next `version`; versions become visible in order, so a watcher that resumes
  from the largest one it saw misses nothing.
- A write that is refused (stale revision, taken name, a value that cannot be stored: Invalid) touches nothing else.
- A database that cannot be used is Unavailable, with its address and the cause. When a connection breaks during a
  write, or its caller is cancelled, it may have been done: `request_id` and `revision` make repeating it safe.
- Text of programs (reasons, last lines) may come back with U+FFFD for what databases refuse (NUL, half surrogates),
  and with **** for credentials in URLs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hai_backend.domain.accounts.user import Quota, Token, User
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Outcome, Run, Task, TaskEvent, TaskState
from hai_backend.domain.usage import GroupLoad, Minutes, RankUse, Window

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Terms are ANDed; the values of one term are ORed; an empty term matches everything."""

    ids: frozenset[int] = frozenset()
    states: frozenset[TaskState] = frozenset()
    outcomes: frozenset[Outcome] = frozenset()
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()  # node groups, without the zone
    names: tuple[str, ...] = ()  # exact, or with * as a wildcard
    tags: frozenset[str] = frozenset()
    task_types: frozenset[str] = frozenset()
    awaiting: frozenset[int] = frozenset()  # that wait for one of these tasks to end
    not_states: frozenset[TaskState] = frozenset()
    not_tags: frozenset[str] = frozenset()
    not_users: frozenset[str] = frozenset()
    not_names: tuple[str, ...] = ()
    starred: bool | None = None
    priority_min: int | None = None
    priority_max: int | None = None
    created_after: float | None = None  # that instant excluded
    created_before: float | None = None  # that instant excluded
    # own tasks, and tasks that a member of one of `visible_groups` shared in his group
    visible_to: str | None = None
    visible_groups: frozenset[str] = frozenset()  # user groups


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """One page. `order_by` is one of ORDERS (text by code point); the id breaks ties in the same direction."""

    filter: TaskFilter = TaskFilter()
    order_by: str = "id"
    descending: bool = True
    page_size: int = 50
    page_token: str = ""
    count: bool = False


ORDERS = ("id", "create_time", "priority", "name", "state")


@dataclass(frozen=True, slots=True)
class TaskPage:
    tasks: tuple[Task, ...]
    next_page_token: str
    total: int | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One mutating call. `what` never contains a secret."""

    time: float
    actor: str
    method: str
    resource: str
    what: str
    code: str


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """One page, newest first. Terms are ANDed; an empty one matches everything."""

    actor: str = ""
    method: str = ""
    resource: str = ""
    code: str = ""
    failed: bool = False
    after: float | None = None  # that instant included
    before: float | None = None  # that instant excluded
    page_size: int = 100
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class AuditPage:
    rows: tuple[AuditRow, ...]
    next_page_token: str


class Store(Protocol):
    """Durable record of everything; memory holds only what can be derived from it."""

    async def open(self) -> None:
        """Create or migrate the schema. Raises Unavailable with the address and the cause."""

    async def close(self) -> None:
        """Finish pending writes."""

    async def confirm(self) -> None:
        """Raises Deposed when another server leads by now: for what is kept outside the store."""

    # tasks
    async def create_task(
        self, task: Task, events: Sequence[TaskEvent], request_id: str = ""
    ) -> Task:
        """Insert (task.id is ignored) and answer with id, revision (1) and version set.

        The same (user, request_id) answers with the first task as it is now. Raises Conflict (NAME_TAKEN, naming the
        other task) when the user has an unfinished task of that name.
        """

    async def task_of_request(self, user: str, request_id: str) -> Task | None:
        """The task that create_task made for the user under this request_id, as it is now."""

    async def skip_task_ids(self, newest: int) -> None:
        """New tasks have larger ids than this one, which the store need not know: it may be a backup's."""

    async def save_task(
        self, task: Task, events: Sequence[TaskEvent], records: Sequence[object] = ()
    ) -> Task | None:
        """Write `task`, whose revision must be one above the stored one; None when it is not: somebody was faster.

        The records are saved with it, or not at all.
        """

    async def get_task(self, task_id: int) -> Task | None:
        """One task with its current or last run."""

    async def find_tasks(self, query: TaskQuery) -> TaskPage:
        """One page. Raises Invalid for an unknown order, or a page token of another query.

        A page that was followed by next_page_token never skips or repeats a task that did not change.
        """

    async def unfinished_tasks(self) -> list[Task]:
        """All of them, by id."""

    async def changed_tasks(self, after_version: int, limit: int) -> list[Task]:
        """Tasks with a larger version, in version order."""

    async def version(self) -> int:
        """The largest version that is visible."""

    async def task_runs(self, task_id: int, after: int = 0, most: int | None = None) -> list[Run]:
        """Runs of a task after a number, oldest first."""

    async def task_events(
        self, task_id: int, after: int = 0, most: int | None = None
    ) -> list[tuple[int, TaskEvent]]:
        """Timeline with sequence numbers, after one of them, oldest first."""

    # nodes and groups
    async def nodes(self) -> list[Node]: ...
    async def save_nodes(self, nodes: Collection[Node]) -> None: ...
    async def delete_nodes(self, names: Collection[str]) -> None: ...
    async def groups(self) -> list[Group]: ...
    async def save_group(self, group: Group) -> None: ...

    # users
    async def users(self) -> list[User]: ...
    async def save_user(self, user: User) -> None: ...
    async def quotas(self) -> list[Quota]: ...
    async def save_quota(self, quota: Quota) -> None: ...
    async def delete_quota(
        self, subject: str, subject_is_group: bool, group: str, priority: Priority
    ) -> bool: ...
    async def tokens(self) -> list[Token]: ...
    async def create_token(self, token: Token) -> Token:
        """Insert (token.id is ignored) and answer with the id set."""

    async def save_token(self, token: Token) -> None: ...
    async def delete_token(self, token_id: int) -> bool:
        """False when there is none. Its id is never given again."""

    # records: see records.py for their kinds
    async def records(self, kind: type[Kept], **equals: object) -> list[Kept]:
        """Those of a kind whose fields have these values (none: all of a kind), by key."""

    async def add_record(self, record: object) -> bool:
        """Insert one; False, and nothing changed, when its key is taken."""

    async def save_record(self, record: object) -> None:
        """Insert one or replace that of the same key."""

    async def delete_record(self, record: object) -> bool:
        """Delete the one of the same key; False when there is none."""

    async def delete_records(self, kind: type[object], **equals: object) -> int:
        """Delete those whose fields have these values, all in one transaction; how many there were."""

    # audit
    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        """Append rows, all of them or none."""

    async def audit(self, query: AuditQuery = AuditQuery()) -> AuditPage:
        """One page, newest first. Raises Invalid for a token of another query. Rows that are added shift nothing."""

    # series of use: see domain/usage.py
    async def add_usage(self, minutes: Minutes) -> None:
        """Keep minutes, in one transaction with what follows of it: coarser buckets that are now complete are made of
        them, and what has expired is dropped. Minutes of the same key are replaced."""

    async def task_usage(
        self, task_id: int, ranks: Collection[int], asked: Window
    ) -> list[RankUse]:
        """What ranks of a task used (no ranks: all of them), in steps, by rank, run and time."""

    async def group_usage(self, group: str, asked: Window) -> list[GroupLoad]:
        """How busy a node group was (empty: each), in steps, by group and time."""
