"""Who runs where, and why the others wait: `schedule(snapshot, policy) -> Plan`, pure, deterministic, total."""

from __future__ import annotations

from hai_backend.scheduler.cache import SchedulerCache, schedule
from hai_backend.scheduler.policy.policy import Policy

__all__ = ["Policy", "SchedulerCache", "schedule"]
