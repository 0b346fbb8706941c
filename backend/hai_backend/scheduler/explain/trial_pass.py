"""One pass over a snapshot, and its result for one task. Dry runs and searches for remedies consist of such passes.

The cost of a pass grows with the task's group, and does not depend on the other groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hai_backend.domain.scheduling.plan import Plan, Start, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler.cache import SchedulerCache
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.group_links import find_connected
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.queue import QueueEntry


@dataclass(frozen=True, slots=True)
class TrialPass:
    """What a pass has decided about a task. `wait` has no position; `cycle` is the pass over the task's group."""

    task: int
    plan: Plan
    start: Start | None
    wait: Wait | None
    cache: SchedulerCache
    cycle: Cycle | None

    @property
    def got_nodes(self) -> bool:
        """Whether the task starts or is promised nodes."""
        promised = self.wait is not None and self.wait.why is WaitReason.WAITING_FOR_PREEMPTED
        return self.start is not None or promised

    @property
    def entry(self) -> QueueEntry | None:
        """The entry of the task in the queue; None if the task is deferred or not queued."""
        return self.cycle.group.entries.get(self.task) if self.cycle else None

    @property
    def victims(self) -> tuple[Suspend, ...]:
        """The suspensions for the task."""
        decisions = self.plan.decisions
        return tuple(d for d in decisions if isinstance(d, Suspend) and d.for_task == self.task)


def run_pass(snapshot: Snapshot, task_id: int, policy: Policy) -> TrialPass:
    """Make a pass over a snapshot, which should be a result of `select_group`."""
    cache = SchedulerCache.from_snapshot(snapshot, policy)
    return run_next_pass(cache, snapshot.now, task_id)


def run_next_pass(cache: SchedulerCache, now: float, task_id: int) -> TrialPass:
    """Make the next pass of a cache."""
    plan = cache.decide(now)
    starts = (d for d in plan.decisions if isinstance(d, Start) and d.task == task_id)
    start = next(starts, None)
    wait = None if start else cache.wait(task_id)
    return TrialPass(task_id, plan, start, wait, cache, cache.cycle_of(task_id))


def select_group(snapshot: Snapshot, group: str) -> Snapshot:
    """Return the part of a snapshot that a pass over this group depends on: the group, and groups connected by runs."""
    names = find_connected([group], _links(snapshot))
    return replace(
        snapshot,
        nodes=tuple(node for node in snapshot.nodes if node.group in names),
        tasks=tuple(task for task in snapshot.tasks if task.group in names),
        groups={name: found for name, found in snapshot.groups.items() if name in names},
        quotas=tuple(row for row in snapshot.quotas if row.group in names),
        shares=tuple(row for row in snapshot.shares if row.group in names),
        endings=tuple(ending for ending in snapshot.endings if ending.task.group in names),
    )


def _links(snapshot: Snapshot) -> list[set[str]]:
    group_of = {node.name: node.group for node in snapshot.nodes}
    placed = (task for task in snapshot.tasks if task.placed)
    runs = ({task.group, *(group_of[n] for n in task.placed if n in group_of)} for task in placed)
    return [groups for groups in runs if len(groups) > 1]
