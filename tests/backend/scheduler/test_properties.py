"""Properties of plans for any cluster, checked with simple computations that do not use the scheduler's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf, nan

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Plan, Start, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask, SchedulingState, Snapshot
from hai_backend.scheduler import Policy, schedule
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.testing import NOW, queued, quota

Snapshots = Callable[..., st.SearchStrategy[Snapshot]]


SLICE = 6500.0  # 1 % of it pays for 65 s of suspending and starting again
IN_ORDER = Policy(ranking=Ranking.SUBMITTED, overhead_share=0.01)


def data(test: Callable[..., None]) -> Callable[..., None]:
    """Run a property on drawn snapshots, without a deadline."""
    return settings(max_examples=80, deadline=None)(given(data=st.data())(test))


def decisions_of(plan: Plan, kind: type) -> list:  # type: ignore[type-arg]
    return [decision for decision in plan.decisions if isinstance(decision, kind)]


def by_id(snapshot: Snapshot) -> dict[int, SchedTask]:
    return {task.id: task for task in snapshot.tasks}


def packed(snapshot: Snapshot) -> bool:
    return snapshot.groups["default"].packed


def gpus_per_rank(snapshot: Snapshot, task: SchedTask) -> int:
    """Return the GPUs of a rank, or -1 for a whole node."""
    return task.gpu if packed(snapshot) and task.gpu else -1


def effective_level(snapshot: Snapshot, task: SchedTask) -> Priority:
    demoted = (
        task.run_priority is Priority.ABOVE_NORMAL
        and task.run_started_at is not None
        and snapshot.now - task.run_started_at >= 1800
    )
    return Priority.NORMAL if demoted else task.run_priority


def are_equals_of_one_user(newcomer: SchedTask, run: SchedTask) -> bool:
    """Return whether both are a user's tasks of one level, as requested or as started."""
    own = Priority.NORMAL if newcomer.priority is Priority.AUTO else newcomer.priority
    same = run.priority is newcomer.priority or run.run_priority is own
    return run.user == newcomer.user and same


def seconds(snapshot: Snapshot, run: SchedTask) -> float:
    """Return how long a run has lasted."""
    return snapshot.now - (run.run_started_at or snapshot.now)


def may_take_turn(snapshot: Snapshot, newcomer: SchedTask, run: SchedTask) -> bool:
    """Return whether the task may suspend a run of its level if equals rank by their wait alone."""
    waited = snapshot.now - newcomer.created_at
    idle = not any(task.placed and task.user == newcomer.user for task in snapshot.tasks)
    demoted = effective_level(snapshot, run) is not run.run_priority
    if waited >= 86_400:
        return seconds(snapshot, run) >= (SLICE if demoted else 900)
    return idle and waited >= SLICE and seconds(snapshot, run) >= SLICE


def queued_at(snapshot: Snapshot, task: SchedTask, level: Priority) -> Priority:
    """Return the level in the queue: a task that has waited for a day is lifted."""
    return max(level, Priority.NORMAL) if snapshot.now - task.created_at >= 86_400 else level


def count_fitting_ranks(snapshot: Snapshot, task: SchedTask, left: Collection[int]) -> int:
    """Count the ranks of `task` that fit after the tasks in `left` have left."""
    return sum(_count_ranks_on(snapshot, node, task, left) for node in snapshot.nodes)


def _count_ranks_on(snapshot: Snapshot, node: Node, task: SchedTask, left: Collection[int]) -> int:
    if not node.usable or task.zone not in ("", node.zone) or node.gpus < task.gpu:
        return 0
    here = [t for t in snapshot.tasks if t.id not in left for name in t.placed if name == node.name]
    if gpus_per_rank(snapshot, task) == -1:
        return int(not here)
    if any(gpus_per_rank(snapshot, other) == -1 for other in here):
        return 0
    return max(0, (node.gpus - sum(other.gpu for other in here)) // task.gpu)


def leaving_ids(snapshot: Snapshot) -> set[int]:
    return {t.id for t in snapshot.tasks if t.standing is SchedulingState.LEAVING and t.leaves_free}


@data
def test_starts_are_whole_gangs_on_usable_nodes_with_room(
    snapshots: Snapshots, data: st.DataObject
) -> None:
    snapshot = data.draw(snapshots())
    tasks, nodes = by_id(snapshot), {node.name: node for node in snapshot.nodes}
    used: Counter[str] = Counter()
    for task in snapshot.tasks:
        for name in task.placed:
            used[name] += nodes[name].gpus if gpus_per_rank(snapshot, task) == -1 else task.gpu
    for start in decisions_of(schedule(snapshot), Start):
        task = tasks[start.task]
        assert len(start.nodes) == task.node_count
        for name in start.nodes:
            assert nodes[name].usable
            assert nodes[name].gpus >= task.gpu
            assert task.zone in ("", nodes[name].zone)
            used[name] += nodes[name].gpus if gpus_per_rank(snapshot, task) == -1 else task.gpu
            assert used[name] <= nodes[name].gpus


@data
def test_every_queued_task_gets_one_decision_and_every_wait_a_sentence(
    snapshots: Snapshots, data: st.DataObject
) -> None:
    snapshot = data.draw(snapshots())
    plan = schedule(snapshot)
    queued_ids = {task.id for task in snapshot.tasks if task.standing is SchedulingState.QUEUED}
    assert sorted(queued_ids) == sorted(
        d.task for d in decisions_of(plan, Start) + decisions_of(plan, Wait)
    )
    assert all(wait.message for wait in decisions_of(plan, Wait))
    assert all(
        len(wait.ahead) <= min(20, max(0, wait.place - 1)) for wait in decisions_of(plan, Wait)
    )


@data
def test_only_lower_levels_and_equals_past_their_minimum_are_suspended_and_never_own_equals(
    snapshots: Snapshots, data: st.DataObject
) -> None:
    snapshot = data.draw(snapshots())
    policy = data.draw(st.sampled_from([Policy(), IN_ORDER, Policy(time_slices=False)]))
    plan, tasks = schedule(snapshot, policy), by_id(snapshot)
    level = {wait.task: wait.priority for wait in decisions_of(plan, Wait)}
    for suspend in decisions_of(plan, Suspend):
        victim, newcomer = tasks[suspend.task], tasks[suspend.for_task]
        assert victim.standing is SchedulingState.RUNNING
        assert effective_level(snapshot, victim) <= level[newcomer.id]
        assert suspend.higher == (effective_level(snapshot, victim) < level[newcomer.id])
        assert suspend.higher or (policy.time_slices and seconds(snapshot, victim) >= 900)
        if victim.user == newcomer.user:
            assert victim.priority is not newcomer.priority


@data
def test_runs_are_suspended_only_if_the_task_fits_then(
    snapshots: Snapshots, data: st.DataObject
) -> None:
    snapshot = data.draw(snapshots())
    plan, tasks = schedule(snapshot), by_id(snapshot)
    left = leaving_ids(snapshot) | {suspend.task for suspend in decisions_of(plan, Suspend)}
    why = {wait.task: wait.why for wait in decisions_of(plan, Wait)}
    for newcomer in {suspend.for_task for suspend in decisions_of(plan, Suspend)}:
        assert why[newcomer] is WaitReason.WAITING_FOR_PREEMPTED
        assert count_fitting_ranks(snapshot, tasks[newcomer], left) >= tasks[newcomer].node_count
    if not packed(snapshot):
        promised = [t for t, reason in why.items() if reason is WaitReason.WAITING_FOR_PREEMPTED]
        wanted = sum(tasks[t].node_count for t in promised)
        wanted += sum(len(start.nodes) for start in decisions_of(plan, Start))
        assert count_fitting_ranks(snapshot, queued(0), left) >= wanted


@data
def test_every_victim_is_needed(snapshots: Snapshots, data: st.DataObject) -> None:
    snapshot = data.draw(snapshots(most=1))
    plan, tasks = schedule(snapshot), by_id(snapshot)
    victims = {suspend.task for suspend in decisions_of(plan, Suspend)}
    for suspend in decisions_of(plan, Suspend):
        left = leaving_ids(snapshot) | (victims - {suspend.task})
        assert (
            count_fitting_ranks(snapshot, tasks[suspend.for_task], left)
            < tasks[suspend.for_task].node_count
        )


@data
def test_one_task_gets_nodes_exactly_when_the_rules_allow_it(
    snapshots: Snapshots, data: st.DataObject
) -> None:
    """No priority inversion, and no suspension while leaving nodes suffice."""
    snapshot = data.draw(snapshots(most=1, quotas=False))
    plan, task = schedule(snapshot, IN_ORDER), by_id(snapshot)[1]
    level = Priority.NORMAL if task.priority is Priority.AUTO else task.priority
    if snapshot.now - task.created_at >= 86_400:
        level = max(level, Priority.NORMAL)
    lower = {
        t.id
        for t in snapshot.tasks
        if t.standing is SchedulingState.RUNNING
        and (
            effective_level(snapshot, t) < level
            or (effective_level(snapshot, t) is level and may_take_turn(snapshot, task, t))
        )
        and not are_equals_of_one_user(task, t)
    }
    leaving = leaving_ids(snapshot)
    request = task.node_count
    if count_fitting_ranks(snapshot, task, ()) >= request:
        assert decisions_of(plan, Start)
    elif count_fitting_ranks(snapshot, task, leaving) >= request:
        assert decisions_of(plan, Wait)[0].why is WaitReason.WAITING_FOR_PREEMPTED
        assert not decisions_of(plan, Suspend)
    elif count_fitting_ranks(snapshot, task, leaving | lower) >= request:
        assert {suspend.task for suspend in decisions_of(plan, Suspend)} <= lower
        assert decisions_of(plan, Suspend)
    else:
        assert decisions_of(plan, Wait)
        assert not decisions_of(plan, Suspend)


@data
def test_no_priority_inversion_in_a_queue(snapshots: Snapshots, data: st.DataObject) -> None:
    """Who waits for nodes could not have had enough of them after those before it were served."""
    snapshot = data.draw(snapshots(quotas=False))
    if packed(snapshot):
        return
    plan, tasks = schedule(snapshot), by_id(snapshot)
    served = [
        (queued_at(snapshot, tasks[s.task], s.priority), s.task) for s in decisions_of(plan, Start)
    ]
    served += [
        (w.priority, w.task)
        for w in decisions_of(plan, Wait)
        if w.why is WaitReason.WAITING_FOR_PREEMPTED
    ]
    first: Wait | None = None
    for wait in decisions_of(plan, Wait):
        if wait.why is not WaitReason.NOT_ENOUGH_NODES:
            continue
        first = first or wait
        if wait is not first and tasks[wait.task].user == tasks[first.task].user:
            continue  # an earlier task of the same user may have reserved the nodes
        task = tasks[wait.task]
        before = sum(tasks[t].node_count for level, t in served if level > wait.priority)
        equal = sum(
            tasks[t].node_count for level, t in served if level == wait.priority and t != task.id
        )
        obtainable = leaving_ids(snapshot) | {
            t.id
            for t in snapshot.tasks
            if t.standing is SchedulingState.RUNNING
            and effective_level(snapshot, t) < wait.priority
            and t.user != task.user
        }
        own = {t for t in obtainable if are_equals_of_one_user(task, tasks[t])}
        assert (
            count_fitting_ranks(snapshot, task, obtainable - own) - before - equal < task.node_count
        )


@data
def test_quota_holds_at_every_instant(snapshots: Snapshots, data: st.DataObject) -> None:
    snapshot = data.draw(snapshots())
    plan, tasks = schedule(snapshot), by_id(snapshot)
    held: Counter[tuple[str, Priority]] = Counter()

    def hold(task: SchedTask, level: Priority, ranks: int) -> None:
        share = (
            ranks
            if gpus_per_rank(snapshot, task) == -1
            else ranks * task.gpu / snapshot.nodes[0].gpus
        )
        held[task.user, level] += share  # type: ignore[assignment]
        held[task.user, Priority.AUTO] += share  # type: ignore[assignment]

    for task in snapshot.tasks:
        if task.placed:
            hold(task, task.run_priority, len(task.placed))
    limits: dict[tuple[str, Priority], int] = {}
    for row in snapshot.quotas:
        limits[row.user, row.priority] = max(limits.get((row.user, row.priority), 0), row.nodes)
    for start in decisions_of(plan, Start):
        task = tasks[start.task]
        hold(task, start.priority, task.node_count)
        assert task.priority in (Priority.AUTO, start.priority)
        for key in ((task.user, start.priority), (task.user, Priority.AUTO)):
            assert held[key] <= limits.get(key, 10**9)


@data
def test_the_order_of_the_input_does_not_matter(snapshots: Snapshots, data: st.DataObject) -> None:
    snapshot = data.draw(snapshots())
    shuffled = replace(
        snapshot,
        nodes=tuple(data.draw(st.permutations(snapshot.nodes))),
        tasks=tuple(data.draw(st.permutations(snapshot.tasks))),
        quotas=tuple(data.draw(st.permutations(snapshot.quotas))),
    )
    assert schedule(snapshot) == schedule(shuffled) == schedule(snapshot)


BAD = st.sampled_from(
    [
        queued(999, 1, custom_rank=nan, user="u"),
        queued(999, 0, user="u"),
        queued(999, -5, user="u"),
        queued(999, 10**20, Priority.EXTREME_HIGH, user="u"),
        queued(999, 99, Priority.AUTO, user="u", created_at=-1.0),
        queued(999, 1, Priority.EXTREME_HIGH, user="u", group="nowhere"),
        queued(999, 1, Priority.EXTREME_HIGH, user="u", assigned_nodes=("nowhere",)),
        queued(999, 1, Priority.AUTO, user="u", zone="nowhere", created_at=-1.0),
        queued(999, 1, Priority.EXTREME_HIGH, user="u", held=True, created_at=-1.0),
        queued(999, 1, 7, user="u"),  # type: ignore[arg-type]
    ]
)


HOSTILE = st.builds(
    replace,
    st.sampled_from([queued(999, user="u"), queued(999, user="hostile")]),
    node_count=st.sampled_from([1, 0, -1, 10**20, 2**63 - 1]),
    group=st.sampled_from(["default", "nowhere", ""]),
    priority=st.sampled_from([*Priority, 7, 10**9]),
    custom_rank=st.sampled_from([0.0, -1e300, nan, inf]),
    created_at=st.sampled_from([NOW, nan, inf, -inf, -1e300, 1e300]),
    waiting_since=st.sampled_from([None, nan, inf, -inf]),
    not_before=st.sampled_from([0.0, nan, inf]),
    run_seconds=st.sampled_from([0.0, -1.0, nan, inf, 1e300]),
    restart_seconds=st.sampled_from([None, -5.0, nan, inf, 1e300]),
    save_seconds=st.sampled_from([0.0, -5.0, nan, inf, 1e300]),
    lost_seconds=st.sampled_from([0.0, -5.0, nan, inf, 1e300]),
    unsaved_suspensions=st.sampled_from([0, -1, 2, 10**20]),
    gpu=st.sampled_from([0, -1, 10**20]),
    cpu=st.sampled_from([0, 10**20]),
    memory=st.sampled_from([0, 10**20]),
    zone=st.sampled_from(["", "nowhere"]),
    assigned_nodes=st.sampled_from([(), ("n0",), ("n0", "n0"), ("\0",)]),
    suspensions=st.sampled_from([(), (Suspension(nan, 1), Suspension(inf, 2))]),
)


@data
def test_a_task_that_can_never_run_does_not_affect_other_tasks(
    snapshots: Snapshots, data: st.DataObject
) -> None:
    snapshot = replace(data.draw(snapshots()), quotas=(quota("hostile", Priority.AUTO, 0),))
    policy = data.draw(st.sampled_from([Policy(), IN_ORDER, Policy(ranking=Ranking.ATTAINED)]))
    bad = data.draw(HOSTILE)
    plan = schedule(replace(snapshot, tasks=(*snapshot.tasks, bad)), policy)
    fate = next(d for d in plan.decisions if d.task == 999)
    assert isinstance(fate, Wait | Start)
    if isinstance(fate, Wait) and fate.why in NEVER:
        others = [d for d in plan.decisions if d.task != 999]
        assert Counter(others) == Counter(schedule(snapshot, policy).decisions)


NEVER = {
    WaitReason.INVALID, WaitReason.NO_SUCH_GROUP, WaitReason.NO_SUCH_NODE, WaitReason.GROUP_TOO_SMALL,
    WaitReason.NODES_UNUSABLE, WaitReason.QUOTA_EXCEEDED, WaitReason.BACKING_OFF,
}  # fmt: skip


@data
def test_an_invalid_row_does_not_affect_other_tasks(
    snapshots: Snapshots, data: st.DataObject
) -> None:
    snapshot, bad = data.draw(snapshots()), data.draw(BAD)
    with_bad = schedule(replace(snapshot, tasks=(bad, *snapshot.tasks)))
    others = tuple(d for d in with_bad.decisions if d.task != 999)
    assert Counter(others) == Counter(schedule(snapshot).decisions)
    assert isinstance(next(d for d in with_bad.decisions if d.task == 999), Wait)


@data
def test_any_default_quota_is_kept(snapshots: Snapshots, data: st.DataObject) -> None:
    snapshot = data.draw(snapshots(quotas=False))
    limit = data.draw(st.integers(0, 3))
    tasks = by_id(snapshot)
    held: Counter[tuple[str, Priority]] = Counter()
    for task in snapshot.tasks:
        if gpus_per_rank(snapshot, task) == -1:
            held[task.user, task.run_priority] += len(task.placed)
    for start in decisions_of(schedule(snapshot, Policy(default_quota=limit)), Start):
        task = tasks[start.task]
        if gpus_per_rank(snapshot, task) == -1:
            held[task.user, start.priority] += task.node_count
            assert held[task.user, start.priority] <= limit
