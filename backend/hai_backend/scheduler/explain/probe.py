"""One pass over a snapshot, and what it says of one task: dry runs and what-ifs look through this.

A cold pass costs what there is in the task's group, not what there is in the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hai_backend.domain.scheduling.plan import Plan, Start, Suspend, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler.cache import SchedulerCache
from hai_backend.scheduler.cycle.cycle import Cycle
from hai_backend.scheduler.group_links import connected
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.queue.queue import Waiting


@dataclass(frozen=True, slots=True)
class Probe:
    """What a pass has decided about a task. `wait` has no place; `seating` is that of its group."""

    task: int
    plan: Plan
    start: Start | None
    wait: Wait | None
    board: SchedulerCache
    seating: Cycle | None

    @property
    def served(self) -> bool:
        """It starts, or nodes are promised to it."""
        promised = self.wait is not None and self.wait.why is WaitReason.WAITING_FOR_PREEMPTED
        return self.start is not None or promised

    @property
    def waiting(self) -> Waiting | None:
        """How it competes; None: it stands aside, or is not in the queue."""
        return self.seating.group.waiting.get(self.task) if self.seating else None

    @property
    def victims(self) -> tuple[Suspend, ...]:
        """Who is asked to leave for it."""
        decisions = self.plan.decisions
        return tuple(d for d in decisions if isinstance(d, Suspend) and d.for_task == self.task)


def look(snapshot: Snapshot, task: int, policy: Policy) -> Probe:
    """Make a pass. The snapshot should be a `part`."""
    board = SchedulerCache.of(snapshot, policy)
    return look_again(board, snapshot.now, task)


def look_again(board: SchedulerCache, now: float, task: int) -> Probe:
    """Make the next pass of a board."""
    plan = board.decide(now)
    starts = (d for d in plan.decisions if isinstance(d, Start) and d.task == task)
    start = next(starts, None)
    wait = None if start else board.wait(task)
    return Probe(task, plan, start, wait, board, board.seating(task))


def part(snapshot: Snapshot, group: str) -> Snapshot:
    """All that a pass over this group depends on: the group, and those that runs connect to it."""
    names = connected([group], _ties(snapshot))
    return replace(
        snapshot,
        nodes=tuple(node for node in snapshot.nodes if node.group in names),
        tasks=tuple(task for task in snapshot.tasks if task.group in names),
        groups={name: found for name, found in snapshot.groups.items() if name in names},
        quotas=tuple(row for row in snapshot.quotas if row.group in names),
        shares=tuple(row for row in snapshot.shares if row.group in names),
        endings=tuple(ending for ending in snapshot.endings if ending.task.group in names),
    )


def _ties(snapshot: Snapshot) -> list[set[str]]:
    homes = {node.name: node.group for node in snapshot.nodes}
    placed = (task for task in snapshot.tasks if task.placed)
    runs = ({task.group, *(homes[n] for n in task.placed if n in homes)} for task in placed)
    return [groups for groups in runs if len(groups) > 1]
