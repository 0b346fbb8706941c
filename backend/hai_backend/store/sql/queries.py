"""Reads of tasks. Plain functions over a connection whose transaction is one snapshot.

A task is three rows deep (task, current run, ranks), so a list of tasks costs three statements, whatever its length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select, tuple_

from hai_backend.domain.task import Rank, Run, Task, TaskEvent
from hai_backend.store import paging
from hai_backend.store.base import TaskPage, TaskQuery
from hai_backend.store.sql import convert
from hai_backend.store.sql.filters import conditions
from hai_backend.store.tables.server import META
from hai_backend.store.tables.tasks import EVENTS, HAS_REQUEST_ID, RANKS, RUNS, TASKS, UNFINISHED

_ORDERS: dict[str, ColumnElement[Any]] = {
    "id": TASKS.c.id,
    "create_time": TASKS.c.created_at,
    "priority": TASKS.c.priority,
    "name": TASKS.c.name,
    "state": TASKS.c.state,
}
_RUN_NUMBER = list(TASKS.c).index(TASKS.c.run_number)
_CURRENT = and_(RUNS.c.task_id == TASKS.c.id, RUNS.c.number == TASKS.c.run_number)
_CURRENT_RANKS = and_(RANKS.c.task_id == TASKS.c.id, RANKS.c.run == TASKS.c.run_number)


def get_task(connection: Connection, task_id: int) -> Task | None:
    """One task, or None."""
    tasks = tasks_of_ids(connection, [task_id])
    return tasks[0] if tasks else None


def task_of_request(connection: Connection, user: str, request_id: str) -> Task | None:
    """The task that a request of the user made, or None."""
    asked = and_(TASKS.c.request_id == request_id, TASKS.c.user_name == user, HAS_REQUEST_ID)
    tasks = _whole(connection, connection.execute(select(TASKS).where(asked)).all())
    return tasks[0] if tasks else None


def tasks_of_ids(connection: Connection, ids: Sequence[int]) -> list[Task]:
    """Those tasks that exist, by id."""
    rows = connection.execute(select(TASKS).where(TASKS.c.id.in_(ids)).order_by(TASKS.c.id))
    return _whole(connection, rows.all())


def unfinished_tasks(connection: Connection) -> list[Task]:
    """All tasks that are not finished, by id."""
    rows = connection.execute(select(TASKS).where(UNFINISHED).order_by(TASKS.c.id)).all()
    return _with_runs(rows, _current_runs(connection, UNFINISHED))


def changed_tasks(connection: Connection, after_version: int, limit: int) -> list[Task]:
    """Tasks written after a version, in version order."""
    query = select(TASKS).where(TASKS.c.version > after_version).order_by(TASKS.c.version)
    return _whole(connection, connection.execute(query.limit(limit)).all())


def version(connection: Connection) -> int:
    """The largest version that was committed."""
    return int(connection.execute(select(META.c.version)).scalar_one())


def find_tasks(connection: Connection, query: TaskQuery) -> TaskPage:
    """One page, one task more than asked for being read to see whether another follows."""
    paging.check(query)
    where = conditions(query.filter, connection.dialect.name)
    rows = connection.execute(_page(query, where)).all()
    tasks = _whole(connection, rows[: query.page_size])
    more = len(rows) > query.page_size
    token = paging.encode(query, tasks[-1]) if more else ""
    return TaskPage(tuple(tasks), token, _count(connection, where) if query.count else None)


def task_runs(connection: Connection, task_id: int, after: int, most: int | None) -> list[Run]:
    """Runs of a task after a number, oldest first."""
    which = and_(RUNS.c.task_id == task_id, RUNS.c.number > after)
    runs = select(RUNS).where(which).order_by(RUNS.c.number).limit(most)
    of_these = RANKS.c.run.in_(runs.with_only_columns(RUNS.c.number))
    ranks = select(RANKS).where(RANKS.c.task_id == task_id, of_these)
    return list(_runs(connection, runs, ranks.order_by(RANKS.c.run, RANKS.c.index)).values())


def task_events(
    connection: Connection, task_id: int, after: int, most: int | None
) -> list[tuple[int, TaskEvent]]:
    """The timeline of a task after a sequence number."""
    of_task = and_(EVENTS.c.task_id == task_id, EVENTS.c.sequence > after)
    query = select(EVENTS).where(of_task).order_by(EVENTS.c.sequence).limit(most)
    return [convert.event_of(row) for row in connection.execute(query)]


def _page(query: TaskQuery, where: list[ColumnElement[bool]]) -> Select[Any]:
    key = _ORDERS[query.order_by]
    order = [TASKS.c.id] if query.order_by == "id" else [key, TASKS.c.id]
    after = paging.decode(query)
    if after is not None:
        where = [*where, _beyond(query, after)]
    directed = [column.desc() for column in order] if query.descending else order
    return select(TASKS).where(*where).order_by(*directed).limit(query.page_size + 1)


def _beyond(query: TaskQuery, after: paging.Position) -> ColumnElement[bool]:
    if query.order_by == "id":
        return TASKS.c.id < after.id if query.descending else TASKS.c.id > after.id
    key = tuple_(_ORDERS[query.order_by], TASKS.c.id)
    return key < tuple(after) if query.descending else key > tuple(after)


def _count(connection: Connection, where: list[ColumnElement[bool]]) -> int:
    query = select(func.count()).select_from(TASKS).where(*where)
    return int(connection.execute(query).scalar_one())


def _whole(connection: Connection, rows: Sequence[Row[Any]]) -> list[Task]:
    started = [row[0] for row in rows if row[_RUN_NUMBER]]
    if not started:
        return _with_runs(rows, {})
    return _with_runs(rows, _current_runs(connection, TASKS.c.id.in_(started)))


def _with_runs(rows: Sequence[Row[Any]], runs: dict[tuple[int, int], Run]) -> list[Task]:
    return [convert.task_of(row, runs.get((row[0], row[_RUN_NUMBER]))) for row in rows]


def _current_runs(connection: Connection, which: ColumnElement[bool]) -> dict[tuple[int, int], Run]:
    runs = select(RUNS).join(TASKS, _CURRENT).where(which)
    ranks = select(RANKS).join(TASKS, _CURRENT_RANKS).where(which)
    return _runs(connection, runs, ranks.order_by(RANKS.c.task_id, RANKS.c.index))


def _runs(
    connection: Connection, runs: Select[Any], ranks: Select[Any]
) -> dict[tuple[int, int], Run]:
    of_run: defaultdict[tuple[int, int], list[Rank]] = defaultdict(list)
    for row in connection.execute(ranks):
        of_run[row[0], row[1]].append(convert.rank_of(row))
    rows = connection.execute(runs)
    return {(r[0], r[1]): convert.run_of(r, tuple(of_run[r[0], r[1]])) for r in rows}
