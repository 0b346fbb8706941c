"""One pass over a whole snapshot. The live loop keeps a SchedulerCache instead, and updates it with changes only."""

from __future__ import annotations

from hai_backend.domain.scheduling.plan import Plan, Wait
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler.cache import SchedulerCache
from hai_backend.scheduler.policy.policy import Policy

_DEFAULT = Policy()


def schedule(snapshot: Snapshot, policy: Policy = _DEFAULT) -> Plan:
    """Which tasks start, are suspended, stop or wait now. Pure, deterministic and total: an invalid row gets a
    reason.
    """
    cache = SchedulerCache.of(snapshot, policy)
    plan = cache.decide(snapshot.now)
    waits = tuple(cache.waits())
    waiting = any(isinstance(decision, Wait) for decision in waits)
    return Plan(snapshot.revision, plan.decisions + waits, plan.wake_at if waiting else None)
