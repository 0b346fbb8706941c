"""Models that streams fill: no item is doubled or missing, in any order of answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai.v1.task_pb2 import TASK_STATE_RUNNING, Task, Waiting
from hai.v1.task_service_pb2 import WatchTasksResponse
from hai_tui.feed.debouncer import Debouncer
from hai_tui.feed.sorted_filtered_index import SortedFilteredIndex
from hai_tui.feed.task_model import TaskModel
from hai_tui.feed.task_row import TaskRow
from hai_tui.tasks.commands import move, stop
from hai_tui.tasks.filter import Filter, parse

tasks = st.builds(
    Task, id=st.integers(1, 6), version=st.integers(1, 40), name=st.sampled_from("abc")
)
answers = st.lists(st.lists(tasks, max_size=4), max_size=12)


@given(answers, st.randoms())
def test_the_latest_version_wins_in_any_order_and_with_repeats(bundles, random) -> None:
    latest: dict[int, int] = {}
    for task in (task for bundle in bundles for task in bundle):
        latest[task.id] = max(latest.get(task.id, 0), task.version)
    model, again = TaskModel(), [*bundles, *bundles]
    random.shuffle(again)
    for bundle in again:
        model.merge(bundle)
    assert {id: task.version for id, task in model.tasks.items()} == latest


def test_a_change_is_told_once() -> None:
    model = TaskModel()
    answer = WatchTasksResponse(tasks=[Task(id=1, version=5)], version=5)
    assert model.apply(answer) == {1}
    assert model.apply(answer) == set()
    assert (model.version, model.loaded) == (5, True)


def test_a_server_with_other_data_is_noticed() -> None:
    model = TaskModel()
    model.apply(WatchTasksResponse(version=9))
    assert not model.is_from_other_database(WatchTasksResponse(version=0))
    assert model.is_from_other_database(WatchTasksResponse(version=3))
    model.reset()
    assert model.version == 0


def test_places_in_the_queue_are_those_of_the_last_look() -> None:
    model, task = TaskModel(), Task(id=1, version=1, waiting=Waiting(queue_place=4))
    assert model.waiting(task).queue_place == 4
    assert model.apply_queue([Task(id=1, waiting=Waiting(queue_place=2))]) == {1}
    assert model.waiting(task).queue_place == 2
    assert model.apply_queue([]) == {1}


def test_a_task_that_runs_waits_for_nothing_although_the_last_look_found_it_in_the_queue() -> None:
    model = TaskModel()
    model.apply_queue([Task(id=1, waiting=Waiting(queue_place=2))])
    assert not model.waiting(Task(id=1, version=2, state=TASK_STATE_RUNNING)).queue_place


@dataclass(frozen=True)
class Thing:
    id: int
    value: int


def above(least: int) -> Callable[[list[Thing]], list[Thing]]:
    return lambda things: [thing for thing in things if thing.value >= least]


steps = st.lists(
    st.dictionaries(st.integers(1, 9), st.integers(0, 3), max_size=5), min_size=1, max_size=8
)


@given(steps, st.booleans(), st.integers(0, 3))
def test_looking_at_changes_gives_the_order_of_looking_at_everything(steps, reverse, least) -> None:
    things: dict[int, Thing] = {}
    kept: SortedFilteredIndex[Thing] = SortedFilteredIndex()
    kept.set_filter(things, above(least))
    kept.sort_by(things, lambda thing: thing.value, reverse)
    for changes in steps:
        things |= {id: Thing(id, value) for id, value in changes.items()}
        order = list(kept.update(things, changes))
        wanted = [thing.id for thing in above(least)(list(things.values()))]
        assert order == sorted(wanted, key=lambda id: (things[id].value, -id), reverse=reverse)
    narrow = [id for id in order if things[id].value > least]
    assert kept.set_filter(things, above(least + 1), above(least + 1)) == narrow


def test_many_changes_are_handed_over_together_and_none_is_lost() -> None:
    given: list[set[int]] = []
    timers: list[Callable[[], None]] = []
    gathered = Debouncer(given.append, 0.1, lambda seconds, call: timers.append(call))
    for id in range(5):
        gathered.add({id})
    assert given == [{0}]
    timers.pop()()
    assert given == [{0}, {1, 2, 3, 4}]
    timers.pop()()
    assert len(given) == 2


def test_a_change_of_what_is_not_known_yet_changes_nothing() -> None:
    kept: SortedFilteredIndex[Thing] = SortedFilteredIndex()
    things = {1: Thing(1, 0)}
    kept.sort_by(things, lambda thing: thing.value, False)
    assert kept.update(things, {1, 7}) == [
        1
    ]  # the queue may have a task before the watch reports it
    assert kept.set_filter({}, above(0)) == []


def test_of_tasks_that_may_wait_for_one_another_the_newest_are_stopped_first() -> None:
    change = stop([Task(id=id) for id in (2, 9, 5)], "plain")
    assert [id for id, _ in change.operations] == [9, 5, 2]


names = st.text("ab", max_size=3)


@given(st.lists(names, max_size=6), st.text("ab 7", max_size=5))
def test_a_filter_that_grows_finds_what_it_finds_at_once(named, line) -> None:
    everything = [TaskRow(Task(id=id, name=name)) for id, name in enumerate(named)]
    found, before = everything, Filter()
    for end in range(len(line) + 1):
        wanted = parse(line[:end])
        left = wanted.remaining_after(before)
        found = wanted.among(everything, 0.0) if left is None else left.among(found, 0.0)
        before = wanted
    assert found == before.among(everything, 0.0)


class Queue:
    """A client that implements only `move`."""

    def __init__(self, order: list[int]) -> None:
        self.tasks, self.order = self, order

    def move(self, id: int, before: int) -> None:
        self.order.remove(id)
        self.order.insert(self.order.index(before), id)


@pytest.mark.parametrize(("place", "to"), [(4, 0), (5, 0), (1, 0), (5, 4), (0, 1), (4, 5)], ids=str)
def test_a_move_is_taken_back_by_two_at_most(place: int, to: int) -> None:
    order = [11, 12, 13, 14, 15, 16]
    queue, change = Queue(list(order)), move(order, place, to)
    for id, operation in change.operations:
        operation(queue, id)
    assert queue.order.index(order[place]) == to
    for id, operation in change.undo_operations:
        operation(queue, id)
    assert queue.order == order
    assert len(change.undo_operations) <= 2
