"""Who takes no part: rows that are bad, and tasks of users who are not active."""

from __future__ import annotations

from hai_backend.domain.scheduling.plan import Stop, Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.row_check import fault


class Admission:
    """What each such task is told: a reason to wait, or an order to stop."""

    def __init__(self) -> None:
        self.inactive_users: frozenset[str] = frozenset()
        self.refused: dict[int, Wait] = {}
        self.stops: dict[int, Stop] = {}

    def competes(self, task: SchedTask) -> bool:
        """Whether a queued task may be offered nodes."""
        if self.refused:
            self.refused.pop(task.id, None)
        if wrong := fault(task):
            self.refuse(task.id, wrong)
            return False
        return not (self.inactive_users or self.stops) or not self.stopped(task)

    def refuse(self, number: int, wrong: str) -> None:
        """Tell a task what is wrong with it."""
        self.refused[number] = Wait(number, WaitReason.INVALID, wrong)

    def stopped(self, task: SchedTask) -> bool:
        """Whether a task must stop, because its user is not active."""
        stops = task.user in self.inactive_users
        if stops:
            self.stops[task.id] = Stop(task.id, f"user {task.user} is not active")
        elif self.stops:
            self.stops.pop(task.id, None)
        return stops

    def forget(self, number: int) -> None:
        """A task is gone."""
        self.refused.pop(number, None)
        self.stops.pop(number, None)
