"""The reasons that users see: sentences with numbers, positions, tasks ahead; and the next wake-up."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Plan, Start, Stop, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler import Policy, SchedulerCache, schedule
from hai_backend.scheduler.capacity.fit import ranks_on
from hai_backend.scheduler.capacity.node_info import NodeInfo, Occupancy
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.explain import reasons
from hai_backend.scheduler.queue.queue import QueueEntry
from hai_backend.scheduler.testing import NOW, leaving, node, nodes, queued, quota, running, snap

LOW, NORMAL, HIGH = Priority.LOW, Priority.NORMAL, Priority.HIGH
PACKED = Group("default", packed=True)


def wait_of(plan: Plan, task: int) -> Wait:
    return next(d for d in plan.decisions if isinstance(d, Wait) and d.task == task)


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        pytest.param(
            snap(nodes(8), leaving(7, "n00 n01"), running(8, "n02 n03 n04", HIGH),
                 running(9, "n05", LOW), queued(1, 6)),
            "Needs 6 nodes. Group default has 8 usable nodes; 2 are free, 2 are being released, "
            "tasks below NORMAL hold 1, tasks at NORMAL or above hold 3.",
            id="all kinds of nodes",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", LOW, user="u1", priority=NORMAL), queued(1)),
            "Group default has 1 usable node; tasks below NORMAL hold it, but cannot be suspended now.",
            id="enough nodes, but of the same user",
        ),
        pytest.param(
            snap(node("a", zone="A"), node("b"), running(9, "a"), queued(1, zone="A")),
            "Group default#A has 1 suitable node; tasks at NORMAL or above hold it.",
            id="only nodes of the zone",
        ),
        pytest.param(
            snap(PACKED, nodes(2, gpus=8), running(9, "n00 n01", gpu=5), queued(1, 4, gpu=3)),
            "Needs 4 x (3 gpus). Group default has 2 usable nodes; tasks at NORMAL or above hold all 2.",
            id="a part of a node",
        ),
        pytest.param(
            snap(PACKED, nodes(2, gpus=8), running(9, "n00 n01", gpu=5), queued(1, 4, gpu=3)),
            "There is room for 2 of 4 ranks now.", id="room for ranks",
        ),
        pytest.param(
            snap(nodes(3), quota("u", HIGH, 2), running(9, "n00", HIGH, user="u"),
                 queued(1, 2, HIGH, user="u")),
            "Needs 2 nodes. User u may hold 2 at HIGH in group default and holds 1.", id="out of quota",
        ),
        pytest.param(
            snap(nodes(4), quota("u", Priority.AUTO, 3), quota("u", HIGH, 2), running(9, "n00 n01", LOW, user="u"),
                 queued(1, 2, HIGH, user="u")),
            "User u may hold 3 in total in group default and holds 2.", id="the tightest limit",
        ),
        pytest.param(
            snap(nodes(3), quota("u", Priority.AUTO, 2), quota("u", HIGH, 9), queued(1, 3, HIGH, user="u")),
            "Needs 3 nodes. User u may hold 2 in total in group default and holds 0.", id="above the total",
        ),
        pytest.param(
            snap(PACKED, nodes(2, gpus=8), quota("u", NORMAL, 1), running(9, "n00", gpu=6, user="u"),
                 queued(1, gpu=4, user="u")),
            "Needs 0.5 nodes. User u may hold 1 at NORMAL in group default and holds 0.75.", id="parts in a quota",
        ),
        pytest.param(
            snap(nodes(1), leaving(7, "n00"), queued(1)),
            "Is promised 1 node. Starts when task 7 has left.", id="promised nodes",
        ),
        pytest.param(
            snap(nodes(12), *(leaving(20 + i, f"n{i:02}") for i in range(12)), queued(1, 12)),
            "Starts when tasks 20, 21, 22, 23, 24, 25, 26, 27, 28, 29 and 2 more have left.", id="promised by many",
        ),
        pytest.param(
            snap(nodes(10), *(leaving(20 + i, f"n{i:02}") for i in range(10)), queued(1, 10)),
            "Starts when tasks 20, 21, 22, 23, 24, 25, 26, 27, 28, 29 have left.", id="promised by ten",
        ),
        pytest.param(
            snap(PACKED, nodes(1, gpus=8), leaving(9, "n00"), queued(1, 2, gpu=4)),
            "Is promised 2 x (4 gpus). Starts when task 9 has left.", id="promised parts",
        ),
        pytest.param(snap(nodes(2), queued(1, 5)), "Needs 5 nodes. Group default has room for 2.", id="too small"),
        pytest.param(
            snap(nodes(2), node("x", cordoned=True), queued(1, 3)),
            "Needs 3 nodes. Group default has room for 3; its ready, uncordoned nodes have room for 2.", id="unusable",
        ),
        pytest.param(snap(queued(1, group="g")), "Node group 'g' does not exist.", id="no such group"),
        pytest.param(snap(nodes(1), queued(1, 1, assigned_nodes=("q",))), "has no node q", id="no such node"),
        pytest.param(snap(nodes(1), queued(1, not_before=NOW + 42)), "before 1970-01-12 13:47:22 UTC", id="late"),
        pytest.param(snap(nodes(1), queued(1, not_before=1e300)), "before second 1e+300", id="beyond all calendars"),
        pytest.param(snap(nodes(1), queued(1, held=True)), "Held by its user. Resume it", id="held"),
        pytest.param(snap(nodes(1), queued(1, -1)), "Requests -1 nodes", id="a senseless count"),
        pytest.param(
            snap(nodes(1), queued(1, 2, assigned_nodes=("a",))), "Requests 2 nodes but names a.", id="names too few",
        ),
        pytest.param(snap(nodes(1), queued(1, 1, 17)), "priority 17 must be one of EXTREME_HIGH", id="no such level"),
        pytest.param(snap(nodes(1), queued(1), queued(1)), "Two tasks have this id.", id="one id twice"),
        pytest.param(
            snap(PACKED, nodes(1, gpus=2), queued(1, gpu=3, cpu=2, memory=1)),
            "Needs 1 x (3 gpus, 2 cpus, 1 GB)", id="everything asked for",
        ),
    ],
)  # fmt: skip
def test_the_reason_has_numbers(snapshot: Snapshot, words: str) -> None:
    assert words in wait_of(schedule(snapshot), 1).message


def test_positions_count_only_tasks_that_compete_for_nodes() -> None:
    waits = [queued(1), queued(2, user="u"), queued(3, held=True), queued(4, 9), queued(5)]
    plan = schedule(snap(nodes(1), quota("u", NORMAL, 0), running(9, "n00"), *waits))
    places = {w.task: (w.place, w.ahead) for w in plan.decisions if isinstance(w, Wait)}
    assert places == {1: (1, ()), 2: (0, ()), 3: (0, ()), 4: (0, ()), 5: (2, (1,))}


def test_a_task_out_of_quota_has_the_position_that_it_would_have() -> None:
    parts = [quota("u", NORMAL, 1), running(8, "n00", user="u"), running(9, "n01"), queued(1)]
    plan = schedule(snap(nodes(2), *parts, queued(2, user="u"), queued(3)))
    assert (wait_of(plan, 2).why, wait_of(plan, 2).place) == (WaitReason.OUT_OF_QUOTA, 2)
    assert wait_of(plan, 3).ahead == (1,)


def test_positions_are_counted_per_group_from_1() -> None:
    busy = [node("a", group="g"), node("b"), running(8, "a", group="g"), running(9, "b")]
    plan = schedule(snap(*busy, queued(1), queued(2, group="g"), queued(3)))
    assert {t: wait_of(plan, t).place for t in (1, 2, 3)} == {1: 1, 2: 1, 3: 2}


def test_at_most_twenty_tasks_ahead_are_listed_from_the_head_of_the_queue() -> None:
    plan = schedule(snap(nodes(1), running(99, "n00"), *(queued(i) for i in range(1, 31))))
    assert wait_of(plan, 30).place == 30
    assert wait_of(plan, 30).ahead == tuple(range(1, 21))
    assert wait_of(plan, 3).ahead == (1, 2)


def test_the_wait_of_an_auto_task_has_its_effective_level() -> None:
    parts = [nodes(1), quota("u", HIGH, 1), running(9, "n00", Priority.EXTREME_HIGH)]
    plan = schedule(snap(*parts, queued(1, 1, Priority.AUTO, user="u")))
    assert wait_of(plan, 1).priority is HIGH


def test_the_reason_of_a_start_names_its_level() -> None:
    (start,) = schedule(snap(nodes(1), queued(1, 1, Priority.AUTO))).decisions
    assert isinstance(start, Start)
    assert start.priority is NORMAL
    assert start.reason == "1 node free in default, first in the queue at NORMAL"


def test_a_suspension_names_the_task_and_the_reason() -> None:
    plan = schedule(
        snap(nodes(1), running(9, "n00", LOW, since=40), queued(1, 1, HIGH, user="eve"))
    )
    (suspend,) = [d for d in plan.decisions if isinstance(d, Suspend)]
    assert suspend.reason == (
        "task 1 of eve at HIGH needs 1 node; this run counts as LOW and loses least (105 node-seconds)"
    )


def test_the_reason_of_a_stop_names_the_inactive_user() -> None:
    (stop,) = schedule(snap(nodes(1), queued(1, user="u"), inactive_users=frozenset("u"))).decisions
    assert stop == Stop(1, "user u is not active")


@pytest.mark.parametrize(
    ("snapshot", "wake_at"),
    [
        pytest.param(snap(nodes(1), queued(1)), None, id="nobody waits"),
        pytest.param(snap(nodes(1), queued(1, not_before=NOW + 5)), NOW + 5, id="a back-off ends"),
        pytest.param(snap(nodes(1), queued(1, not_before=NOW + 5, held=True)), None, id="but not for a held task"),
        pytest.param(
            snap(nodes(1), running(9, "n00", Priority.ABOVE_NORMAL, since=800), queued(1)),
            NOW + 100, id="the minimum of a run ends",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", Priority.ABOVE_NORMAL, since=1700), queued(1)),
            NOW + 100, id="a run will be demoted",
        ),
        pytest.param(snap(nodes(1), running(9, "n00", Priority.ABOVE_NORMAL)), None, id="but nobody waits for it"),
        pytest.param(
            snap(nodes(1), running(9, "n00", HIGH, since=9e6), queued(1, created_at=NOW - 600.0)),
            NOW + 5900, id="who waits has waited for a slice",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", HIGH, since=9e6), queued(1, created_at=NOW - 7000.0)),
            NOW + 6000, id="who waits has waited for a second slice",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", HIGH, since=9e6), queued(1, created_at=NOW - 60_000.0)),
            NOW + 26_400, id="who waits is lifted",
        ),
        pytest.param(
            snap(nodes(1), running(9, "n00", HIGH, since=9e6), queued(1, 1, LOW, created_at=NOW - 1e5)),
            None, id="who waits is lifted already",
        ),
        pytest.param(
            snap(nodes(1), queued(1, not_before=NOW + 9), queued(2, not_before=NOW + 5)), NOW + 5, id="the first",
        ),
    ],
)  # fmt: skip
def test_wake_at_is_the_next_time_that_changes_a_decision(
    snapshot: Snapshot, wake_at: float | None
) -> None:
    assert schedule(snapshot, Policy(overhead_share=0.01)).wake_at == wake_at


def test_the_policy_sets_ahead_limit_and_auto_level() -> None:
    policy = Policy(ahead_limit=1, auto_level_when_unlimited=LOW)
    plan = schedule(
        snap(nodes(1), running(9, "n00"), *(queued(i, 1, Priority.AUTO) for i in (1, 2, 3))), policy
    )
    assert wait_of(plan, 3).ahead == (1,)
    assert wait_of(plan, 3).priority is LOW


def test_the_plan_carries_the_revision_of_its_snapshot() -> None:
    assert schedule(snap(revision=7)) == Plan(7, ())


def test_stops_come_in_one_order_whatever_the_input() -> None:
    tasks = [queued(2, user="u"), queued(1, user="u"), running(3, "n00", user="u")]
    plans = [
        schedule(snap(nodes(1), *order, inactive_users=frozenset("u")))
        for order in (tasks, tasks[::-1])
    ]
    assert plans[0] == plans[1]
    assert [d.task for d in plans[0].decisions] == [1, 2, 3]


def expected_counts(cycle: Cycle, entry: QueueEntry) -> list[int]:
    """Compute the numbers of the sentence from every suitable node."""
    request, level = entry.request, entry.level
    nodes = cycle.group.pool.nodes_for(request)

    def below(node: NodeInfo) -> bool:
        held = [a for a in node.allocations if a.occupancy is not Occupancy.RELEASING]
        return all(a.precedence and a.precedence.level < level for a in held)

    empty = sum(node.occupancy is Occupancy.EMPTY for node in nodes)
    releasing = sum(node.occupancy is Occupancy.RELEASING for node in nodes)
    lower = sum(node.occupancy is Occupancy.ALLOCATED and below(node) for node in nodes)
    rest = len(nodes) - empty - releasing - lower
    free = sum(ranks_on(node, request, Occupancy.EMPTY) for node in nodes)
    ranks = [] if request.whole_nodes else [free, request.count]
    held = [count for count in (empty, releasing, lower, rest) if count]
    return [len(nodes), *(held if len(nodes) > 1 else []), *ranks]


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_the_numbers_equal_a_count_of_every_node(
    snapshots: Callable[..., st.SearchStrategy[Snapshot]], data: st.DataObject
) -> None:
    cache = SchedulerCache.from_snapshot(data.draw(snapshots()), Policy())
    cache.decide(NOW)
    for wait in cache.waits("default"):
        cycle = cache.cycle_of(wait.task)
        if wait.why is WaitReason.NOT_ENOUGH_NODES and cycle is not None:
            _, _, sentence = wait.message.partition(". ")
            found = [int(number) for number in re.findall(r" (\d+)\b", sentence)]
            assert found == expected_counts(cycle, cycle.group.entries[wait.task])


def test_hundreds_of_request_sizes_do_not_each_examine_every_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[NodeInfo] = []
    usual = reasons._below
    monkeypatch.setattr(reasons, "_below", lambda node, lv: looks.append(node) or usual(node, lv))
    runs = [running(100 + i, f"n{i:02}", HIGH, gpu=8) for i in range(20)]
    tasks = [queued(i, gpu=1, cpu=i) for i in range(1, 41)]
    cache = SchedulerCache.from_snapshot(
        snap(PACKED, nodes(20, gpus=8, cpus=90), *runs, *tasks), Policy()
    )
    cache.decide(NOW)
    assert len([*cache.waits()]) == 40
    assert len(looks) <= 20
