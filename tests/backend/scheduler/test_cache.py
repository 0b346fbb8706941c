"""A cache that followed every change decides exactly as a new cache of the whole snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.node import Group, Node, NodeState
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Decision, Plan, Start, Stop, Suspend, Wait
from hai_backend.domain.scheduling.snapshot import (
    Ending,
    QuotaRow,
    SchedTask,
    SchedulingState,
    ShareRow,
    Snapshot,
)
from hai_backend.domain.spec import TaskType
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.testing import NOW, node, queued, quota

GROUPS = ("g", "h")
USERS = "uvw"
ASKED = (Priority.NORMAL, Priority.NORMAL, Priority.AUTO, *LEVELS)


@dataclass
class Facts:
    """A cluster that changes in many ways, and a cache that is updated only with the changes."""

    cache: SchedulerCache
    policy: Policy
    now: float = NOW
    nodes: dict[str, Node] = field(default_factory=dict)
    tasks: dict[int, SchedTask] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=lambda: {n: Group(n) for n in GROUPS})
    quotas: list[QuotaRow] = field(default_factory=list)
    inactive: frozenset[str] = frozenset()
    shares: dict[str, ShareRow] = field(default_factory=dict)
    endings: list[Ending] = field(default_factory=list)
    changed: dict[int, None] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)
    plan: Plan = field(default_factory=lambda: Plan(0, ()))
    submitted: int = 0

    def pass_over(self) -> None:
        """Update the cache with the changes, make a pass, and compare."""
        self.cache.update_rules(Rules.from_snapshot(self.snapshot()))
        self.cache.update_nodes(list(self.nodes.values()))
        self.cache.update_tasks([self.tasks[t] for t in self.changed], self.gone, self.now)
        self.changed, self.gone = {}, []
        self.plan = self.cache.decide(self.now)
        fresh = SchedulerCache.from_snapshot(self.snapshot(), self.policy)
        expected = fresh.decide(self.now)
        self.look_again_at_reservations(fresh)
        self.compare(fresh, expected)

    def look_again_at_reservations(self, fresh: SchedulerCache) -> None:
        """Make the pass again if a reservation was used: expected ends move with time, without a wake-up."""
        for name, group in self.cache._groups.items():
            cycles = (self.cache._cycles.get(name), fresh._cycles.get(name))
            if any(cycle and cycle._reservation for cycle in cycles):
                group.changed = True
        self.plan = self.cache.decide(self.now)

    def compare(self, fresh: SchedulerCache, expected: Plan) -> None:
        assert self.plan.decisions == expected.decisions
        waits = [*self.cache.waits()]
        assert waits == [*fresh.waits()]
        found = {wait.task: wait for wait in waits}
        for task in self.tasks:
            assert self.cache.wait(task) == placeless(found.get(task))
        if expected.wake_at is not None:
            assert self.plan.wake_at is not None
            assert self.plan.wake_at <= expected.wake_at

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.now, tuple(self.nodes.values()), tuple(self.tasks.values()), dict(self.groups),
            tuple(self.quotas), self.inactive, endings=tuple(self.endings),
            shares=tuple(self.shares.values()),
        )  # fmt: skip

    def put(self, task: SchedTask, **facts: object) -> None:
        self.tasks[task.id] = replace(task, **facts)  # type: ignore[arg-type]
        self.changed[task.id] = None

    def drop(self, task: int) -> None:
        del self.tasks[task]
        self.changed.pop(task, None)
        self.gone.append(task)

    def one_of(self, number: int, *standing: SchedulingState) -> SchedTask | None:
        found = [t for t in self.tasks.values() if t.standing in standing]
        return found[number % len(found)] if found else None

    def one_node(self, number: int) -> Node | None:
        return list(self.nodes.values())[number % len(self.nodes)] if self.nodes else None

    def carry_out(self, decision: Decision) -> None:
        task = self.tasks.get(decision.task)
        match decision:
            case Start(nodes=placed, priority=level) if (
                task and task.standing is SchedulingState.QUEUED
            ):
                self.put(
                    task, standing=SchedulingState.RUNNING, placed=placed, run_priority=level,
                    run_started_at=self.now,
                )  # fmt: skip
            case Suspend() if task and task.standing is SchedulingState.RUNNING:
                mark = Suspension(self.now, decision.for_task, decision.higher)
                self.put(
                    task, standing=SchedulingState.LEAVING, suspended_for=decision.for_task,
                    suspensions=(*task.suspensions, mark),
                )  # fmt: skip
            case Stop() if task:
                self.drop(decision.task)


def placeless(wait: Wait | None) -> Wait | None:
    """Return the wait without its position."""
    return None if wait is None else replace(wait, place=0, ahead=())


Change = Callable[[Facts, int, int, int], None]


def submit(facts: Facts, a: int, b: int, c: int) -> None:
    facts.submitted += 1
    facts.put(
        queued(
            facts.submitted, 1 + a % 3, ASKED[b % len(ASKED)],
            user=USERS[c % 3], group=GROUPS[a % 5 == 4], gpu=(0, 2, 4)[b % 3],
            custom_rank=(0.0, 0.0, 1.0, -1.0)[c % 4], zone=("", "", "", "A")[a % 4],
            created_at=facts.now - (0.0, 7000.0, 90_000.0)[b % 3], name=("", "x")[c % 2],
            not_before=(0.0, 0.0, facts.now + 100.0)[(a + c) % 3], held=(a + b) % 9 == 8,
            spot=a % 7 == 6, task_type=(TaskType.TRAINING, TaskType.JUPYTER)[b % 5 == 4],
        )
    )  # fmt: skip


def carry_out_one(facts: Facts, a: int, b: int, c: int) -> None:
    if facts.plan.decisions:
        facts.carry_out(facts.plan.decisions[a % len(facts.plan.decisions)])


def carry_out_all(facts: Facts, a: int, b: int, c: int) -> None:
    for decision in facts.plan.decisions:
        facts.carry_out(decision)


def give_way(facts: Facts, a: int, b: int, c: int) -> None:
    if task := facts.one_of(a, SchedulingState.LEAVING):
        facts.put(
            task, standing=SchedulingState.QUEUED, placed=(), suspended_for=0, run_started_at=None,
            run_priority=Priority.AUTO, run_seconds=task.run_seconds + 1000.0,
            waiting_since=facts.now,
        )  # fmt: skip


def end(facts: Facts, a: int, b: int, c: int) -> None:
    if task := facts.one_of(a, SchedulingState.RUNNING, SchedulingState.QUEUED):
        facts.drop(task.id)
        if task.run_started_at is not None:
            ending = Ending(task, task.run_seconds + facts.now - task.run_started_at)
            facts.endings.append(ending)
            facts.cache.learn([ending])


def give_a_node_back(facts: Facts, a: int, b: int, c: int) -> None:
    task = facts.one_of(a, SchedulingState.RUNNING)
    if task and len(task.placed) > 1:
        facts.put(task, placed=task.placed[1:])


def touch(facts: Facts, a: int, b: int, c: int) -> None:
    if task := facts.one_of(a, SchedulingState.RUNNING):
        facts.put(task, saved_at=facts.now, yields=b % 2 == 0)


def edit(facts: Facts, a: int, b: int, c: int) -> None:
    if task := facts.one_of(a, SchedulingState.QUEUED):
        user_order = (
            {"custom_rank": float(c % 5 - 2)},
            {"held": not task.held},
            {"priority": ASKED[c % 11]},
        )
        facts.put(task, **user_order[b % 3])


def add_node(facts: Facts, a: int, b: int, c: int) -> None:
    name = f"n{a % 8}"
    facts.nodes.setdefault(
        name, node(name, group=GROUPS[b % 4 == 3], zone=("", "A")[c % 2], gpus=4, cpus=8,
                   topology=(f"l{c % 2}",))
    )  # fmt: skip


def lose_node(facts: Facts, a: int, b: int, c: int) -> None:
    if lost := facts.one_node(a):
        del facts.nodes[lost.name]


def change_node(facts: Facts, a: int, b: int, c: int) -> None:
    if old := facts.one_node(a):
        changes: tuple[dict[str, object], ...] = (
            {"cordoned": not old.cordoned}, {"cordoned": False, "state": NodeState.READY},
            {"state": NodeState.NOT_READY}, {"group": GROUPS[c % 2]}, {"gpus": (4, 8)[c % 2]},
            {"zone": ("", "A")[c % 2]}, {"updated_at": facts.now},
        )  # fmt: skip
        facts.nodes[old.name] = replace(old, **changes[b % 7])  # type: ignore[arg-type]


def change_quota(facts: Facts, a: int, b: int, c: int) -> None:
    if facts.quotas and a % 3 == 0:
        del facts.quotas[b % len(facts.quotas)]
    else:
        facts.quotas.append(quota(USERS[a % 3], ASKED[b % 11], c % 4, GROUPS[c % 5 == 4]))


def change_share(facts: Facts, a: int, b: int, c: int) -> None:
    if facts.shares and a % 4 == 0:
        facts.shares.popitem()
    else:
        users, limit = (("u",), ("v",), ("w",))[a % 3], (None, None, 3, 4)[b % 4]
        row = ShareRow(users[0], "g", frozenset(users), c % 3, b % 3, limit)
        facts.shares[row.name] = row


def change_user(facts: Facts, a: int, b: int, c: int) -> None:
    facts.inactive ^= {USERS[a % 3]}


def change_packing(facts: Facts, a: int, b: int, c: int) -> None:
    name = GROUPS[a % 2]
    facts.groups[name] = Group(name, packed=not facts.groups[name].packed)


def let_time_pass(facts: Facts, a: int, b: int, c: int) -> None:
    steps = (1.0, 60.0, 900.0, 6500.0, 30_000.0, 90_000.0, facts.plan.wake_at or facts.now)
    step = steps[a % 7]
    facts.now = max(facts.now, step) if a % 7 == 6 else facts.now + step


CHANGES: tuple[Change, ...] = (
    submit, submit, submit, submit, carry_out_all, carry_out_all, carry_out_one, give_way, give_way,
    end, give_a_node_back, touch, edit, add_node, lose_node, change_node, change_node, change_quota,
    change_user, change_share, change_packing, let_time_pass, let_time_pass, let_time_pass,
)  # fmt: skip

number = st.integers(0, 39)
stories = st.lists(
    st.tuples(st.integers(0, len(CHANGES) - 1), number, number, number, st.booleans()),
    min_size=20,
    max_size=70,
)

RANKINGS = [
    pytest.param(Policy(ranking=Ranking.SUBMITTED), id="submitted"),
    pytest.param(Policy(ranking=Ranking.ATTAINED), id="attained"),
    pytest.param(Policy(relearn_seconds=0.0), id="learned at once"),
    pytest.param(Policy(ranking=Ranking.SUBMITTED, time_slices=False, default_quota=2), id="whole"),
]


@pytest.mark.parametrize("policy", RANKINGS)
@given(stories)
@settings(max_examples=60, deadline=None)
def test_a_cache_that_followed_every_change_decides_as_a_new_cache(
    policy: Policy, story: list[tuple[int, int, int, int, bool]]
) -> None:
    facts = Facts(SchedulerCache(policy), policy)
    for i in range(5):
        add_node(facts, i, i, i)
    for change, a, b, c, decide in story:
        CHANGES[change](facts, a, b, c)
        if decide:
            facts.pass_over()
    facts.pass_over()
