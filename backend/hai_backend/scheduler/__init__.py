"""Decides which tasks run on which nodes, and why other tasks wait: `schedule(snapshot, policy) -> Plan`."""

from __future__ import annotations

from hai_backend.scheduler.cache import SchedulerCache, schedule
from hai_backend.scheduler.policy.policy import Policy

__all__ = ["Policy", "SchedulerCache", "schedule"]
