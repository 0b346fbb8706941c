"""The queue offers nodes to tasks in order, and skips exactly the tasks in the scope of a refusal."""

from __future__ import annotations

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.priority import Priority
from hai_backend.scheduler.capacity.requests import Request
from hai_backend.scheduler.queue.queue import Queue, QueueEntry, RefusalScope, natural_key
from hai_backend.scheduler.testing import NOW, queued

NEEDS = (Request(1), Request(2), Request(3))
LEVELS = (Priority.HIGH, Priority.NORMAL)

entry_lists = st.lists(
    st.tuples(
        st.sampled_from(NEEDS), st.sampled_from(LEVELS), st.sampled_from("uv"),
        st.sampled_from([0.5, 1.0, inf]), st.integers(0, 3), st.booleans(),
    ),
    max_size=25,
)  # fmt: skip


def make_entry(
    task: int, request: Request, level: Priority, user: str, merit: float, age: int, auto: bool
) -> QueueEntry:
    asked = Priority.AUTO if auto else level
    facts = queued(task, request.count, asked, user=user, created_at=NOW - age)
    entry = QueueEntry(facts, request, level, level, merit, inf)
    entry.key = natural_key(entry)
    return entry


def filled(
    rows: list[tuple[Request, Priority, str, float, int, bool]],
) -> tuple[Queue, list[QueueEntry]]:
    queue, tasks = Queue(), [make_entry(i, *row) for i, row in enumerate(rows)]
    for task in tasks:
        queue.add(task)
    return queue, tasks


def visited(queue: Queue, answer: dict[int, RefusalScope] | None = None) -> list[int]:
    seen: list[int] = []

    def offer(task: QueueEntry) -> RefusalScope | None:
        seen.append(task.task.id)
        return (answer or {}).get(task.task.id)

    queue.walk(offer, lambda request: True)
    return seen


def in_order(tasks: list[QueueEntry]) -> list[QueueEntry]:
    return sorted(tasks, key=lambda task: task.key)


@given(entry_lists, st.sets(st.integers(0, 24)))
@settings(deadline=None)
def test_everybody_is_offered_nodes_once_in_order(
    rows: list[tuple[Request, Priority, str, float, int, bool]], gone: set[int]
) -> None:
    queue, tasks = filled(rows)
    for task in tasks:
        if task.task.id in gone:
            queue.discard(task)
    left = [task.task.id for task in in_order(tasks) if task.task.id not in gone]
    assert visited(queue) == left
    assert [task.task.id for task in queue.in_order()] == left


@given(entry_lists)
@settings(deadline=None)
def test_appending_and_sorting_equals_adding_one_by_one(
    rows: list[tuple[Request, Priority, str, float, int, bool]],
) -> None:
    queue, tasks = filled(rows)
    other = Queue()
    for task in tasks:
        other.append([task])
    other.sort()
    assert visited(other) == visited(queue)
    for task in tasks:
        other.discard(task)
    assert visited(other) == list(other.in_order()) == []


@given(entry_lists, st.dictionaries(st.integers(0, 24), st.sampled_from(RefusalScope)))
@settings(deadline=None)
def test_a_refusal_skips_only_the_tasks_in_its_scope(
    rows: list[tuple[Request, Priority, str, float, int, bool]], answer: dict[int, RefusalScope]
) -> None:
    queue, tasks = filled(rows)
    lines: set[Request] = set()
    lanes: set[object] = set()
    expected: list[int] = []
    for task in in_order(tasks):
        lane = (task.request, task.lane)
        if task.request in lines or lane in lanes:
            continue
        expected.append(task.task.id)
        verdict = answer.get(task.task.id)
        if verdict is RefusalScope.LINE:
            lines.add(task.request)
        if verdict is RefusalScope.LANE:
            lanes.add(lane)
    assert visited(queue, answer) == expected


def test_a_request_that_is_not_feasible_is_skipped() -> None:
    queue, _ = filled([(request, Priority.NORMAL, "u", 1.0, 0, False) for request in NEEDS[:2]])
    seen: list[int] = []

    def offer(task: QueueEntry) -> None:
        seen.append(task.task.id)

    queue.walk(offer, lambda request: request is NEEDS[1])
    assert seen == [1]


def test_two_tasks_may_share_a_position_for_a_moment() -> None:
    """One task gets the position of another one; then each is removed alone."""
    queue, (one, two) = filled([(NEEDS[0], Priority.NORMAL, "u", 1.0, age, False) for age in (2, 1)])  # fmt: skip
    queue.discard(two)
    two.key = (*one.key, two.task.id)
    queue.add(two)
    queue.discard(one)
    assert visited(queue) == [two.task.id]
    queue.discard(two)
    assert visited(queue) == []
