"""One pass over a whole snapshot: what should start, leave or stop, and why everybody else waits.

The live loop keeps a Board (cache.py) and shows it only what changes; one who has a snapshot asks here.
"""

from __future__ import annotations

from hai_backend.domain.scheduling.plan import Plan, Wait
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler.cache import SchedulerCache
from hai_backend.scheduler.policy.policy import Policy

_DEFAULT = Policy()


def schedule(snapshot: Snapshot, policy: Policy = _DEFAULT) -> Plan:
    """What should start, leave, stop or wait now. Pure, deterministic, and total: a bad row gets a reason."""
    board = SchedulerCache.of(snapshot, policy)
    plan = board.decide(snapshot.now)
    waits = tuple(board.waits())
    waiting = any(isinstance(decision, Wait) for decision in waits)
    return Plan(snapshot.revision, plan.decisions + waits, plan.wake_at if waiting else None)
