"""The state of a group between passes: turns, positions, custom ranks and wake-ups."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Plan, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, Snapshot
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.queue.history import History, stagger_factor
from hai_backend.scheduler.queue.precedence import task_kind
from hai_backend.scheduler.testing import NOW, leaving, node, nodes, queued, quota, running, snap

LOW, NORMAL, HIGH, TOP = Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.EXTREME_HIGH
SLICE, DAY = 6500.0, 86_400.0
IN_ORDER = Policy(overhead_share=0.01, ranking=Ranking.SUBMITTED)
LEARNED = Policy(overhead_share=0.01)


def decided_cache(snapshot: Snapshot, policy: Policy = IN_ORDER) -> SchedulerCache:
    cache = SchedulerCache.from_snapshot(snapshot, policy)
    cache.decide(NOW)
    return cache


def positions(cache: SchedulerCache) -> list[int]:
    """Return the queued tasks that have a position, in order."""
    found = {wait.place: wait.task for wait in cache.waits() if wait.place}
    return [found[position] for position in sorted(found)]


def victims(plan: Plan) -> dict[int, int]:
    return {d.task: d.for_task for d in plan.decisions if isinstance(d, Suspend)}


def busy(count: int) -> list[SchedTask]:
    """Return runs that cannot be suspended."""
    return [running(90 + i, f"n{i:02}", TOP) for i in range(count)]


def cordoned(found: list[Node], *names: str) -> list[Node]:
    return [replace(node, cordoned=node.name in names) for node in found]


def test_cordoning_a_node_moves_the_reordered_tasks_of_a_user() -> None:
    """Task 1 can start only with both nodes, and then gives its position to task 3."""
    user_tasks = [queued(1, 2, user="u"), queued(3, user="u", custom_rank=-1.0)]
    cache = decided_cache(snap(nodes(2), *busy(2), *user_tasks, queued(2)))
    assert positions(cache) == [3, 2, 1]
    cache.update_nodes(cordoned(nodes(2), "n01"))
    cache.decide(NOW)
    assert positions(cache) == [2, 3]
    cache.update_nodes(nodes(2))
    cache.decide(NOW)
    assert positions(cache) == [3, 2, 1]


def test_removing_custom_ranks_restores_the_positions() -> None:
    user_tasks = [
        queued(1, user="u"),
        queued(3, user="u", custom_rank=-1.0),
        queued(4, user="u", custom_rank=-1.0),
    ]
    cache = decided_cache(snap(nodes(1), *busy(1), *user_tasks, queued(2)))
    assert positions(cache) == [3, 2, 4, 1]
    cache.update_tasks([], [4], NOW)
    cache.decide(NOW)
    assert positions(cache) == [3, 2, 1]
    cache.update_tasks([replace(user_tasks[1], custom_rank=0.0)], (), NOW)
    cache.decide(NOW)
    assert positions(cache) == [1, 2, 3]


def test_one_custom_rank_keeps_a_user_reordered() -> None:
    user_tasks = [queued(1, user="u"), queued(3, user="u", custom_rank=-1.0)]
    gone = queued(4, user="u", custom_rank=-1.0)
    cache = decided_cache(snap(nodes(1), *busy(1), *user_tasks, queued(2), gone))
    cache.update_tasks([], [4], NOW)
    cache.decide(NOW)
    cache.update_tasks([queued(5, user="u", created_at=NOW - 2000)], (), NOW)
    cache.decide(NOW)
    assert positions(cache) == [3, 5, 2, 1]


def test_whoever_is_moved_ahead_the_turn_is_of_who_has_waited_longest() -> None:
    """Task 3 gets the position that the turn gives to task 1, even after its user is updated again."""
    user_tasks = [
        queued(1, user="u", created_at=NOW - SLICE - 500),
        queued(3, user="u", custom_rank=-1.0, created_at=NOW - 1000),
    ]
    other = queued(2, user="v", created_at=NOW - SLICE - 1500)
    cache = decided_cache(snap(nodes(1), running(8, "n00", TOP, user="v"), *user_tasks, other))
    assert positions(cache) == [3, 2, 1]
    cache.update_tasks([queued(4, user="u", created_at=NOW)], (), NOW)
    cache.decide(NOW)
    assert positions(cache) == [3, 2, 1, 4]


def test_a_new_run_ends_the_turn_of_its_user() -> None:
    late = queued(1, user="u", created_at=NOW - SLICE)
    other = running(9, "n00", since=SLICE)
    cache = SchedulerCache.from_snapshot(
        snap(nodes(2), running(8, "n01", TOP), other, late), IN_ORDER
    )
    cache.update_tasks([running(7, "n01", TOP, user="u")], [8], NOW)
    assert victims(cache.decide(NOW)) == {}
    cache = decided_cache(snap(nodes(2), running(8, "n01", TOP), other, replace(late, held=True)))
    cache.update_tasks([late], (), NOW)
    assert victims(cache.decide(NOW)) == {9: 1}


def test_a_new_run_ends_a_turn_that_has_just_begun() -> None:
    late = queued(1, user="u", created_at=NOW - SLICE)
    runs = [running(8, "n01", TOP), running(9, "n00", since=SLICE)]
    cache = SchedulerCache.from_snapshot(snap(nodes(2), *runs, late), IN_ORDER)
    assert victims(cache.decide(NOW)) == {9: 1}
    cache.update_tasks([running(7, "n01", TOP, user="u")], [8], NOW)
    assert victims(cache.decide(NOW)) == {}


def test_a_run_that_ends_gives_its_user_a_turn() -> None:
    late = queued(1, user="u", created_at=NOW - SLICE)
    runs = [running(8, "n01", TOP, user="u"), running(9, "n00", since=SLICE)]
    cache = decided_cache(snap(nodes(2), *runs, late))
    cache.update_tasks([running(7, "n01", TOP)], [8], NOW)
    assert victims(cache.decide(NOW)) == {9: 1}


def test_a_new_run_uses_quota_of_auto_tasks() -> None:
    auto = queued(1, 1, Priority.AUTO, user="u")
    rows = [quota("u", HIGH, 1), quota("u", NORMAL, 5)]
    cache = decided_cache(
        snap(nodes(2), running(8, "n00", TOP), running(9, "n01", TOP), auto, *rows)
    )
    (wait,) = cache.waits()
    assert wait.priority is HIGH
    cache.update_tasks([running(7, "n00", HIGH, user="u")], [8], NOW)
    cache.decide(NOW)
    (wait,) = cache.waits()
    assert wait.priority is NORMAL


@pytest.mark.parametrize(
    ("parts", "wake_at"),
    [
        pytest.param([queued(1, held=True)], None, id="held: nobody knows"),
        pytest.param([queued(1, not_before=NOW + 42)], NOW + 42, id="put off"),
        pytest.param([queued(1, created_at=NOW)], NOW + SLICE, id="its turn"),
        pytest.param([queued(1, spot=True, created_at=NOW)], NOW + SLICE, id="spot waits for its turn, too"),
        pytest.param([queued(1, user="u", created_at=NOW), running(8, "n01", TOP, user="u", since=DAY)],
                     NOW + DAY, id="its lift"),
        pytest.param([running(8, "n01", since=60)], None, id="nobody waits"),
        pytest.param([queued(1, created_at=NOW), running(8, "n01", since=60)], NOW + 840, id="protection of a run"),
        pytest.param([queued(1, created_at=NOW), leaving(8, "n01", since=60)], NOW + SLICE, id="who leaves"),
        pytest.param([queued(1, held=True), running(8, "n01", since=60)], NOW + 840, id="of a run, for who is held"),
    ],
)  # fmt: skip
def test_wake_up_times(parts: list[Any], wake_at: float | None) -> None:
    state = snap(nodes(2), running(9, "n00", TOP, since=DAY), *parts)
    assert SchedulerCache.from_snapshot(state, IN_ORDER).decide(NOW).wake_at == wake_at


def test_a_wake_up_causes_a_pass() -> None:
    cache = decided_cache(
        snap(nodes(1), running(9, "n00", since=SLICE - 1), queued(1, created_at=NOW - SLICE))
    )
    assert cache.decide(NOW).decisions == ()
    assert victims(cache.decide(NOW + 1)) == {9: 1}


def test_who_was_put_off_enters_in_time() -> None:
    cache = decided_cache(snap(nodes(1), queued(1, not_before=NOW + 42)))
    assert cache.decide(NOW + 41).decisions == ()
    (start,) = cache.decide(NOW + 42).decisions
    assert start.task == 1
    held = decided_cache(snap(nodes(1), queued(1, not_before=NOW + 42, held=True)))
    assert held.decide(NOW + 42).decisions == ()


QUICK = tuple(Ending(queued(500 + i, user="v", name="quick"), 20.0) for i in range(50))


def learns(name: str) -> list[float]:
    """Return the seconds after which a quick task becomes the first of group `name`, and the last again."""
    parts = [node("a", group=name), running(9, "a", TOP, group=name)]
    slow = queued(1, group=name, user="u", name="slow", created_at=NOW)
    quick = queued(2, group=name, user="v", name="quick", created_at=NOW)
    cache = SchedulerCache.from_snapshot(snap(*parts, slow, quick), Policy(relearn_seconds=1000.0))
    cache.decide(NOW)
    at, found = NOW, list[float]()
    for ended, order in ((quick, [1, 2]), (slow, [2, 1])):
        cache.learn([Ending(ended, 20.0)] * 50 * 20 ** len(found))
        begin = at
        while positions(cache) == order:
            at += 10.0
            cache.update_tasks([running(9, "a", TOP, group=name)], (), at)
            cache.decide(at)
            assert at < NOW + 5000
        found.append(at - begin)
    assert found == pytest.approx([1000 * stagger_factor(name)] * 2, abs=21)
    return found


def test_groups_update_their_merits_at_different_times() -> None:
    found = {name: learns(name) for name in ("default", "g", "h", "x")}
    assert all(750 <= seconds <= 1270 for both in found.values() for seconds in both), found
    assert len({first for first, _ in found.values()}) > 2


def test_groups_have_64_different_refresh_intervals() -> None:
    found = {stagger_factor(f"group{i}") for i in range(1000)}
    assert sorted(found) == [0.75 + i / 128 for i in range(64)]


def test_the_first_pass_uses_all_endings() -> None:
    busy_one = [nodes(1), running(9, "n00", TOP)]
    cache = decided_cache(
        snap(*busy_one, queued(1), queued(2, user="v", name="quick"), endings=QUICK), LEARNED
    )
    assert positions(cache) == [2, 1]


def test_an_ending_with_a_negative_time_is_ignored() -> None:
    odd = tuple(replace(ending, seconds=-1.0) for ending in QUICK)
    cache = decided_cache(
        snap(
            nodes(1),
            running(9, "n00", TOP),
            queued(1),
            queued(2, user="v", name="quick"),
            endings=odd,
        )
    )
    assert positions(cache) == [1, 2]
    assert cache.snapshot().endings == ()


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_an_ending_after_no_time_is_learned(seconds: float) -> None:
    ending = replace(QUICK[0], seconds=seconds)
    assert decided_cache(snap(endings=(ending,))).snapshot().endings == (ending,)


def test_a_cache_returns_why_one_task_waits() -> None:
    cache = decided_cache(
        snap(nodes(1), *busy(1), queued(1), queued(2, -1), queued(3, held=True), Group("default"))
    )
    messages = {n: wait.message for n in (1, 2, 3) if (wait := cache.wait(n))}
    waits = {w.task: w.message for w in cache.waits()}
    assert messages == waits
    assert cache.wait(90) is None
    assert cache.wait(7) is None
    assert [w.task for w in cache.waits("default")] == [2, 3, 1]
    assert list(cache.waits("elsewhere")) == []
    cache.update_tasks([queued(4)], (), NOW)
    assert cache.wait(4) is None  # no pass was made since it was added
    assert isinstance(cache.wait(2), Wait)


def test_feasibility_is_computed_once_per_request() -> None:
    cache = decided_cache(snap(nodes(1), *busy(1), queued(1), queued(2)))
    first, other = cache.wait(1), cache.wait(2)
    assert first
    assert other
    assert first.message is other.message
    assert [wait.message is first.message for wait in cache.waits()] == [True, True]


def test_there_is_no_wake_up_without_queued_tasks() -> None:
    cache = decided_cache(snap(nodes(1), running(9, "n00", since=60)))
    (group,) = cache._groups.values()
    assert group.wakeups.next_at() == NOW + 840
    assert cache.decide(NOW + 1).wake_at is None
    assert decided_cache(snap()).decide(NOW).wake_at is None


def test_who_was_there_twice_and_comes_again_alone_is_judged_anew() -> None:
    cache = decided_cache(snap(nodes(1), queued(1), queued(1)))
    (wait,) = cache.waits()
    assert wait.why is WaitReason.INVALID
    cache.update_tasks([queued(1)], (), NOW)
    (start,) = cache.decide(NOW).decisions
    assert start.task == 1
    assert (list(cache.waits()), cache.wait(1)) == ([], None)


def test_a_group_that_is_built_anew_knows_all_endings() -> None:
    tasks = [queued(1, user="u"), queued(2, user="v", name="quick")]
    state = snap(nodes(1), running(9, "n00", TOP), *tasks)
    cache = decided_cache(state, LEARNED)
    cache.learn(QUICK)
    cache.decide(NOW)
    assert positions(cache) == [1, 2]
    cache.update_rules(Rules(quotas=(quota("x", LOW, 1),)))
    cache.decide(NOW)
    assert positions(cache) == [2, 1]


def test_a_cache_may_use_the_histories_of_another_cache() -> None:
    history = History()
    for ending in QUICK:
        history.learn(task_kind(ending.task), ending.seconds)
    cache = SchedulerCache(LEARNED)
    cache.use_histories({"default": history})
    cache.update_nodes(nodes(1))
    tasks = [queued(1, user="u"), queued(2, user="v", name="quick")]
    cache.update_tasks([running(9, "n00", TOP), *tasks], (), NOW)
    cache.decide(NOW)
    assert positions(cache) == [2, 1]


def test_parts_are_weighed_against_the_largest_node_in_each_respect() -> None:
    sizes = [(1, 2, 3), (9, 1, 1), (2, 9, 2), (3, 3, 9)]
    found = [node(f"n{i}", gpus=g, cpus=c, memory_bytes=m) for i, (g, c, m) in enumerate(sizes)]
    cache = decided_cache(snap(*found, queued(1, held=True)))
    assert cache._groups["default"].requests.largest == (9, 9, 9)


MOVED = [node("a", group="other"), running(9, "a", TOP), queued(1, group="other")]


def test_a_run_on_a_node_that_was_moved_frees_it_for_the_other_group() -> None:
    cache = decided_cache(snap(*MOVED))
    cache.update_tasks([], [9], NOW)
    (start,) = cache.decide(NOW).decisions
    assert (start.task, cache.decide(NOW).decisions) == (1, (start,))


def test_a_run_keeps_a_moved_node_when_its_group_is_built_again() -> None:
    for group in ("other", "default"):
        cache = decided_cache(snap(*MOVED))
        cache.update_rules(Rules(quotas=(quota("x", LOW, 1, group),)))
        assert cache.decide(NOW).decisions == ()
        cache.update_tasks([], [9], NOW)
        assert len(cache.decide(NOW).decisions) == 1


def test_irrelevant_changes_of_a_node_need_no_pass() -> None:
    cache = decided_cache(snap(nodes(1), *busy(1), queued(1)))
    (group,) = cache._groups.values()
    cache.update_nodes([replace(nodes(1)[0], updated_at=NOW, reason="ok")])
    assert not group.changed
    assert cache.snapshot().nodes[0].reason == "ok"


@pytest.mark.parametrize("beside", [[], [8]], ids=["alone", "beside one of the group"])
@pytest.mark.parametrize("level", [LOW, TOP])
def test_a_moved_node_is_disabled_and_enabled_with_the_run_of_another_group(
    level: Priority, beside: list[int]
) -> None:
    closed, waits = node("a", group="other", cordoned=True), queued(1, group="other", user="u")
    opened_again = replace(closed, cordoned=False)
    for opened in (False, True):
        user_tasks = [running(task, "a", level, group="other", user="u") for task in beside]
        cache = decided_cache(
            snap(opened_again, running(9, "a", level, user="u"), user_tasks, waits)
        )
        cache.update_nodes([closed])
        assert cache.decide(NOW).decisions == ()
        if opened:
            cache.update_nodes([opened_again])
            assert cache.decide(NOW).decisions == ()
        cache.update_tasks([], [9, *beside], NOW)
        assert [d.task for d in cache.decide(NOW).decisions] == [1] * opened


def test_a_node_is_enabled_with_the_runs_on_it() -> None:
    cache = decided_cache(snap(nodes(2), *busy(2), queued(1)))
    cache.update_nodes(cordoned(nodes(2), "n01"))
    cache.decide(NOW)
    cache.update_nodes(nodes(2))
    assert cache.decide(NOW).decisions == ()
    cache.update_tasks([], [91], NOW)
    (start,) = cache.decide(NOW).decisions
    assert start.nodes == ("n01",)


def test_each_rank_is_promised_separate_room() -> None:
    """Half of n00 stays in use."""
    stay, leave = running(7, "n00", TOP, gpu=4), leaving(8, "n00", gpu=4)
    state = snap(
        Group("default", packed=True), nodes(2, gpus=8), stay, leave, leaving(9, "n01", gpu=8)
    )
    cache = decided_cache(replace(state, tasks=(*state.tasks, queued(1, 3, gpu=4))))
    cycle = cache.cycle_of(1)
    assert cycle is not None
    allocation = cycle.allocation_of(1)
    assert allocation is not None
    assert [spot.name for spot in allocation.nodes] == ["n00", "n01", "n01"]


@pytest.mark.parametrize("gpu", [0, 4], ids=["a node", "a part"])
@pytest.mark.parametrize(
    ("claims", "name"),
    [
        pytest.param((1, 1), "n00", id="both for it"),
        pytest.param((7, 1), "n01", id="for it before for another one"),
        pytest.param((0, 1), "n01", id="for it before for nobody"),
        pytest.param((7, 0), "n01", id="for nobody before for another one"),
        pytest.param((7, 8), "n00", id="both for others"),
    ],
)
def test_releasing_nodes_are_promised_to_the_task_that_they_are_reserved_for(
    claims: tuple[int, int], name: str, gpu: int
) -> None:
    left = [
        leaving(90 + i, f"n{i:02}", reserved_for=task, gpu=gpu) for i, task in enumerate(claims)
    ]
    packed = Group("default", packed=True)
    cycle = decided_cache(snap(packed, nodes(2, gpus=4), *left, queued(1, gpu=gpu))).cycle_of(1)
    assert cycle is not None
    allocation = cycle.allocation_of(1)
    assert allocation is not None
    assert [spot.name for spot in allocation.nodes] == [name]


def test_a_tiny_run_keeps_the_merit_that_it_had_in_the_queue() -> None:
    """On nodes that declare no cpus, a cpu is the smallest part of a node."""
    packed = Group("default", packed=True)
    tasks = running(9, "n00", cpu=1, since=1000.0), queued(1, cpu=1, run_seconds=1000.0)
    group = decided_cache(snap(packed, nodes(1), *tasks), LEARNED)._groups["default"]
    precedence = group.allocations[9].precedence
    assert precedence is not None
    assert precedence.merit == pytest.approx(group.entries[1].merit * LEARNED.staying**2)


def test_a_task_that_cannot_start_has_its_natural_position() -> None:
    """Before, task 1 has had the position of task 3."""
    user_tasks = [queued(1, user="u", custom_rank=1.0), queued(3, 2, user="u")]
    rows = [quota("u", NORMAL, 2)]
    cache = decided_cache(snap(nodes(2), *busy(2), *user_tasks, queued(2), *rows))
    assert positions(cache) == [3, 2, 1]
    cache.update_tasks(
        [replace(user_tasks[1], node_count=9), replace(user_tasks[0], node_count=9)], (), NOW
    )
    cache.decide(NOW)
    fresh = decided_cache(cache.snapshot())
    assert list(cache.waits()) == list(fresh.waits())


def test_equal_tasks_differ_by_their_earlier_run_time() -> None:
    cache = decided_cache(
        snap(nodes(1), *busy(1), queued(1, user="u", run_seconds=9e5), queued(2, user="u")), LEARNED
    )
    assert positions(cache) == [2, 1]


def test_a_history_refresh_is_due_after_its_interval() -> None:
    cache = decided_cache(
        snap(nodes(1), *busy(1), queued(1), queued(2, user="v", name="quick")), LEARNED
    )
    cache.learn(QUICK)
    due = NOW + LEARNED.relearn_seconds * stagger_factor("default")
    for at, order in ((due - 1, [1, 2]), (due, [2, 1])):
        for _ in range(3):
            cache.update_tasks(busy(1), (), at)
            cache.decide(at)
        assert positions(cache) == order


def test_a_task_added_before_a_refresh_gets_the_new_merit() -> None:
    tasks = [queued(1), queued(2, user="v", name="quick")]
    cache = decided_cache(snap(nodes(1), *busy(1), *tasks), LEARNED)
    cache.learn(QUICK)
    due = NOW + LEARNED.relearn_seconds * stagger_factor("default")
    for changed in (tasks, busy(1), busy(1)):
        cache.update_tasks(changed, (), due)
        cache.decide(due)
    assert positions(cache) == [2, 1]


def test_a_new_cache_has_no_tasks() -> None:
    found = SchedulerCache(Policy()).snapshot()
    assert (found.now, found.tasks, found.nodes) == (-inf, (), ())


def test_a_task_is_lifted_when_its_patience_ends() -> None:
    late = queued(1, 1, LOW, user="u", created_at=NOW - DAY + 10)
    runs = [running(8, "n01", TOP, user="u"), running(9, "n00", Priority.UNDER_NORMAL)]
    cache = decided_cache(snap(nodes(2), *runs, late))
    assert cache.decide(NOW + 9).decisions == ()
    assert victims(cache.decide(NOW + 10)) == {9: 1}


def test_the_level_of_a_removed_auto_task_goes_to_the_next() -> None:
    autos = [queued(i, 1, Priority.AUTO, user="u") for i in (1, 2)]
    cache = decided_cache(
        snap(nodes(1), *busy(1), *autos, quota("u", HIGH, 1), quota("u", NORMAL, 5))
    )
    assert {wait.task: wait.priority for wait in cache.waits()} == {1: HIGH, 2: NORMAL}
    cache.update_tasks([], [1], NOW)
    cache.decide(NOW)
    assert {wait.task: wait.priority for wait in cache.waits()} == {2: HIGH}


def test_an_auto_task_that_cannot_start_uses_no_level() -> None:
    nowhere = queued(1, 1, Priority.AUTO, user="u", zone="nowhere")
    auto = queued(2, 1, Priority.AUTO, user="u")
    rows = quota("u", HIGH, 1), quota("u", NORMAL, 5)
    cache = decided_cache(snap(nodes(1), *busy(1), nowhere, auto, *rows))
    assert {wait.task: wait.priority for wait in cache.waits()}[2] is HIGH


def test_old_task_names_are_dropped() -> None:
    """Nothing is learned, because no task ends."""
    cache = decided_cache(snap(nodes(1)), LEARNED)
    for i in range(25_000):
        cache.update_tasks([queued(1, name=f"sweep-{i}")], (), NOW)
    assert len(cache._groups["default"]._classes) <= 20_000
