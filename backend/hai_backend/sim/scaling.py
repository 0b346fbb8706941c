"""More of the same: tasks like those of a snapshot, and how large it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from hai_backend.domain.scheduling.snapshot import SchedTask, SchedulingState, Snapshot

Another = Callable[[int, Random], SchedTask]
"""Makes one more task; the number is new with each."""


def numbers(given: Snapshot) -> Mapping[str, int]:
    """What --synthetic takes, of a snapshot."""
    waiting = sum(task.standing is SchedulingState.QUEUED for task in given.tasks)
    return {
        "nodes": len(given.nodes),
        "waiting": waiting,
        "running": len(given.tasks) - waiting,
        "users": len({task.user for task in given.tasks}),
        "groups": len({node.group for node in given.nodes}),
    }


def resubmitted(given: Snapshot) -> Another:
    """Tasks that are there are submitted again, without what has happened to them."""
    newest = max(task.id for task in given.tasks)

    def another(number: int, draw: Random) -> SchedTask:
        model = draw.choice(given.tasks)
        return SchedTask(
            id=newest + 1 + number,
            user=model.user,
            group=model.group,
            node_count=model.node_count,
            priority=model.priority,
            created_at=given.now,
            zone=model.zone,
            task_type=model.task_type,
            gpu=model.gpu,
            cpu=model.cpu,
            memory=model.memory,
            name=model.name,
            yields=model.yields,
        )

    return another
