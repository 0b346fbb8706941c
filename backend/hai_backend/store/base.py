"""The interface of the store. sql/store.py and memory/store.py implement it and pass the same tests.

Every implementation follows these rules:
- A write returns only after its changes are durable.
- A task is written completely (its row, its current run with all ranks, new events), and only if the stored revision
  is the one that the caller has read.
- Every write of a task or node gets the next `version`. Versions become visible in ascending order. A watcher that
  resumes from the largest version that it has read therefore misses no change.
- A refused write (an outdated revision, a name in use, a value that cannot be stored) changes nothing.
- If the database cannot be used, the call raises Unavailable with the address and the cause. If the connection breaks
  during a write, or its caller is cancelled, the write may have been committed. Callers can safely repeat the write,
  because `request_id` and `revision` detect the repetition.
- Texts of programs (reasons, last lines) are stored with U+FFFD in place of characters that databases refuse (NUL,
  unpaired surrogates) and with **** in place of credentials in URLs.
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

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Selects the tasks that match every term.

    A term matches if one of its values matches, or if it is empty. A `not_` term matches if none of its values matches.
    """

    ids: frozenset[int] = frozenset()
    states: frozenset[TaskState] = frozenset()
    outcomes: frozenset[Outcome] = frozenset()
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()  # node groups, without the zone
    names: tuple[str, ...] = ()  # exact names, or patterns in which * matches any text
    tags: frozenset[str] = frozenset()
    task_types: frozenset[str] = frozenset()
    # unfinished tasks that wait for the end of one of these tasks
    awaiting: frozenset[int] = frozenset()
    not_states: frozenset[TaskState] = frozenset()
    not_tags: frozenset[str] = frozenset()
    not_users: frozenset[str] = frozenset()
    not_names: tuple[str, ...] = ()
    starred: bool | None = None
    priority_min: int | None = None
    priority_max: int | None = None
    created_after: float | None = None  # exclusive
    created_before: float | None = None  # exclusive
    # tasks of this user, and tasks that a member of one of `visible_groups` shares with the members of the group
    visible_to: str | None = None
    visible_groups: frozenset[str] = frozenset()  # user groups


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Requests one page. `order_by` is one of ORDERS. Strings are ordered by code point, equal values by id.

    `count` also requests the number of matching tasks.
    """

    filter: TaskFilter = TaskFilter()
    order_by: str = "id"
    descending: bool = True
    page_size: int = 50
    page_token: str = ""
    count: bool = False


ORDERS = ("id", "create_time", "priority", "name", "state")


@dataclass(frozen=True, slots=True)
class TaskPage:
    """One page of tasks. `next_page_token` is empty on the last page. `total` is set if the query has `count`."""

    tasks: tuple[Task, ...]
    next_page_token: str
    total: int | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One call that changed something. `what` describes its arguments without secrets."""

    time: float
    actor: str
    method: str
    resource: str
    what: str
    code: str


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Requests one page of calls, newest first. Every term must match; a term that is empty or None always matches."""

    actor: str = ""
    method: str = ""
    resource: str = ""
    code: str = ""
    failed: bool = False  # only calls that failed
    after: float | None = None  # inclusive
    before: float | None = None  # exclusive
    page_size: int = 100
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """One page of calls. `next_page_token` is empty on the last page."""

    rows: tuple[AuditRow, ...]
    next_page_token: str


class Store(Protocol):
    """Stores everything that must survive a restart."""

    async def open(self) -> None:
        """Create or migrate the schema. Raises Unavailable if the database cannot be used."""

    async def close(self) -> None:
        """Finish pending writes."""

    async def require_leader(self) -> None:
        """Raise Deposed if another server has become the leader.

        Callers use this before they change data outside the store. Writes to the store are checked anyway.
        """

    # tasks
    async def create_task(
        self, task: Task, events: Sequence[TaskEvent], request_id: str = ""
    ) -> Task:
        """Insert a task. Return it with its new id, revision 1 and its version.

        If the user has created a task with the same `request_id` before, return the current state of that task.
        Raises Conflict (NAME_TAKEN) if the user has an unfinished task of the same name.
        """

    async def get_task_by_request(self, user: str, request_id: str) -> Task | None:
        """Return the current state of the task that the user created with this `request_id`, or None."""

    async def skip_task_ids(self, newest: int) -> None:
        """Give new tasks ids above `newest`. A store that was restored from a backup may not contain that task."""

    async def save_task(
        self, task: Task, events: Sequence[TaskEvent], records: Sequence[object] = ()
    ) -> Task | None:
        """Replace the stored task and save `records` in the same transaction.

        The revision of `task` must be the stored revision plus one. Otherwise return None and change nothing: another
        caller has changed the task meanwhile.
        """

    async def get_task(self, task_id: int) -> Task | None:
        """Return a task with its current or last run, or None if there is no such task."""

    async def find_tasks(self, query: TaskQuery) -> TaskPage:
        """Return one page. Raises Invalid for an unknown order, or for a page token of another query.

        A caller that follows `next_page_token` gets every task that does not change meanwhile exactly once.
        """

    async def unfinished_tasks(self) -> list[Task]:
        """Return all unfinished tasks, ordered by id."""

    async def changed_tasks(self, after_version: int, limit: int) -> list[Task]:
        """Return at most `limit` tasks with a version above `after_version`, ordered by version."""

    async def version(self) -> int:
        """Return the largest visible version."""

    async def task_runs(self, task_id: int, after: int = 0, limit: int | None = None) -> list[Run]:
        """Return runs of a task with numbers above `after`, oldest first, at most `limit`."""

    async def task_events(
        self, task_id: int, after: int = 0, limit: int | None = None
    ) -> list[tuple[int, TaskEvent]]:
        """Return events of a task with sequence numbers above `after`, oldest first, at most `limit`."""

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
        """Insert a token. Return it with its new id."""

    async def save_token(self, token: Token) -> None: ...
    async def delete_token(self, token_id: int) -> bool:
        """Delete a token. Return False if there is no such token. Its id is never used again."""

    # records: sql/records.py lists their kinds
    async def records(self, kind: type[Record], **equals: object) -> list[Record]:
        """Return the records of a kind whose fields have the values `equals`, ordered by key."""

    async def add_record(self, record: object) -> bool:
        """Insert a record. Return False and change nothing if there is a record with the same key."""

    async def save_record(self, record: object) -> None:
        """Insert a record, or replace the record with the same key."""

    async def delete_record(self, record: object) -> bool:
        """Delete the record with the same key. Return False if there is none."""

    async def delete_records(self, kind: type[object], **equals: object) -> int:
        """Delete all records of a kind whose fields have the values `equals`. Return their number."""

    # audit
    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        """Append all rows in one transaction."""

    async def audit(self, query: AuditQuery = AuditQuery()) -> AuditPage:
        """Return one page. Raises Invalid for a page token of another query.

        Rows that are added between two pages do not move the following pages.
        """

    # usage over time, see domain/usage.py
    async def add_usage(self, minutes: Minutes) -> None:
        """Store minutes. Stored minutes of the same rank or group and time are replaced.

        The same transaction builds the coarser buckets that are now complete, and deletes expired buckets.
        """

    async def task_usage(
        self, task_id: int, ranks: Collection[int], window: Window
    ) -> list[RankUse]:
        """Return the usage of ranks of a task per step, ordered by rank, run and time. No `ranks` means all."""

    async def group_usage(self, group: str, window: Window) -> list[GroupLoad]:
        """Return the load of a node group per step, ordered by group and time. An empty `group` means all."""
