"""Who runs where, and why the others wait: `schedule(snapshot, policy) -> Plan`, pure, deterministic, total."""

from __future__ import annotations

from hai_backend.sched.board import Board
from hai_backend.sched.policy import Policy
from hai_backend.sched.schedule import schedule

__all__ = ["Board", "Policy", "schedule"]
