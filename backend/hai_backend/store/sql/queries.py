"""Reads tasks, runs and events. Each function gets a connection in a transaction that reads from one snapshot.

A task consists of rows of three tables (task, current run, ranks). A list of tasks of any length is read with three
queries.
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
from hai_backend.store.tables.cluster import META
from hai_backend.store.tables.tasks import EVENTS, HAS_REQUEST_ID, RANKS, RUNS, TASKS, UNFINISHED

_ORDERS: dict[str, ColumnElement[Any]] = {
    "id": TASKS.c.id,
    "create_time": TASKS.c.created_at,
    "priority": TASKS.c.priority,
    "name": TASKS.c.name,
    "state": TASKS.c.state,
}
_RUN_NUMBER = list(TASKS.c).index(TASKS.c.run_number)
_CURRENT_RUN = and_(RUNS.c.task_id == TASKS.c.id, RUNS.c.number == TASKS.c.run_number)
_CURRENT_RANKS = and_(RANKS.c.task_id == TASKS.c.id, RANKS.c.run == TASKS.c.run_number)


def get_task(connection: Connection, task_id: int) -> Task | None:
    rows = connection.execute(select(TASKS).where(TASKS.c.id == task_id)).all()
    tasks = _load_tasks(connection, rows)
    return tasks[0] if tasks else None


def get_task_by_request(connection: Connection, user: str, request_id: str) -> Task | None:
    condition = and_(TASKS.c.request_id == request_id, TASKS.c.user_name == user, HAS_REQUEST_ID)
    tasks = _load_tasks(connection, connection.execute(select(TASKS).where(condition)).all())
    return tasks[0] if tasks else None


def unfinished_tasks(connection: Connection) -> list[Task]:
    rows = connection.execute(select(TASKS).where(UNFINISHED).order_by(TASKS.c.id)).all()
    return _tasks_from_rows(rows, _current_runs(connection, UNFINISHED))


def changed_tasks(connection: Connection, after_version: int, limit: int) -> list[Task]:
    query = select(TASKS).where(TASKS.c.version > after_version).order_by(TASKS.c.version)
    return _load_tasks(connection, connection.execute(query.limit(limit)).all())


def version(connection: Connection) -> int:
    return int(connection.execute(select(META.c.version)).scalar_one())


def find_tasks(connection: Connection, query: TaskQuery) -> TaskPage:
    """Read one page, and one more task to find out whether another page follows."""
    paging.check_query(query)
    where = conditions(query.filter, connection.dialect.name)
    rows = connection.execute(_page_query(query, where)).all()
    tasks = _load_tasks(connection, rows[: query.page_size])
    has_next = len(rows) > query.page_size
    token = paging.encode_token(query, tasks[-1]) if has_next else ""
    return TaskPage(tuple(tasks), token, _count(connection, where) if query.count else None)


def task_runs(connection: Connection, task_id: int, after: int, limit: int | None) -> list[Run]:
    condition = and_(RUNS.c.task_id == task_id, RUNS.c.number > after)
    runs = select(RUNS).where(condition).order_by(RUNS.c.number).limit(limit)
    in_runs = RANKS.c.run.in_(runs.with_only_columns(RUNS.c.number))
    ranks = select(RANKS).where(RANKS.c.task_id == task_id, in_runs)
    return list(_read_runs(connection, runs, ranks.order_by(RANKS.c.run, RANKS.c.index)).values())


def task_events(
    connection: Connection, task_id: int, after: int, limit: int | None
) -> list[tuple[int, TaskEvent]]:
    condition = and_(EVENTS.c.task_id == task_id, EVENTS.c.sequence > after)
    query = select(EVENTS).where(condition).order_by(EVENTS.c.sequence).limit(limit)
    return [convert.event_from_row(row) for row in connection.execute(query)]


def _page_query(query: TaskQuery, where: list[ColumnElement[bool]]) -> Select[Any]:
    key = _ORDERS[query.order_by]
    columns = [TASKS.c.id] if query.order_by == "id" else [key, TASKS.c.id]
    last = paging.decode_token(query)
    if last is not None:
        where = [*where, _is_after(query, last)]
    order = [column.desc() for column in columns] if query.descending else columns
    return select(TASKS).where(*where).order_by(*order).limit(query.page_size + 1)


def _is_after(query: TaskQuery, last: paging.Position) -> ColumnElement[bool]:
    if query.order_by == "id":
        return TASKS.c.id < last.id if query.descending else TASKS.c.id > last.id
    key = tuple_(_ORDERS[query.order_by], TASKS.c.id)
    return key < tuple(last) if query.descending else key > tuple(last)


def _count(connection: Connection, where: list[ColumnElement[bool]]) -> int:
    query = select(func.count()).select_from(TASKS).where(*where)
    return int(connection.execute(query).scalar_one())


def _load_tasks(connection: Connection, rows: Sequence[Row[Any]]) -> list[Task]:
    """Return the tasks in these rows, with their current runs."""
    with_run = [row[0] for row in rows if row[_RUN_NUMBER]]
    runs = _current_runs(connection, TASKS.c.id.in_(with_run)) if with_run else {}
    return _tasks_from_rows(rows, runs)


def _tasks_from_rows(rows: Sequence[Row[Any]], runs: dict[tuple[int, int], Run]) -> list[Task]:
    return [convert.task_from_row(row, runs.get((row[0], row[_RUN_NUMBER]))) for row in rows]


def _current_runs(
    connection: Connection, condition: ColumnElement[bool]
) -> dict[tuple[int, int], Run]:
    """Return the current runs of the tasks that meet a condition, by task id and run number."""
    runs = select(RUNS).join(TASKS, _CURRENT_RUN).where(condition)
    ranks = select(RANKS).join(TASKS, _CURRENT_RANKS).where(condition)
    return _read_runs(connection, runs, ranks.order_by(RANKS.c.task_id, RANKS.c.index))


def _read_runs(
    connection: Connection, runs: Select[Any], ranks: Select[Any]
) -> dict[tuple[int, int], Run]:
    ranks_by_run: defaultdict[tuple[int, int], list[Rank]] = defaultdict(list)
    for row in connection.execute(ranks):
        ranks_by_run[row[0], row[1]].append(convert.rank_from_row(row))
    rows = connection.execute(runs)
    return {(r[0], r[1]): convert.run_from_row(r, tuple(ranks_by_run[r[0], r[1]])) for r in rows}
