"""Who runs where, and why the others wait: `schedule(snapshot, policy) -> Plan`, pure, deterministic, total."""

from __future__ import annotations

from hai_backend.scheduler.cache import SchedulerCache
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.schedule import schedule

__all__ = ["Policy", "SchedulerCache", "schedule"]
