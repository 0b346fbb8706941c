"""Applies the scheduler's invariants (scheduler.invariants) to a sample of the passes of the live server.

A violation is a bug in the scheduler. It is logged as an error and counted, and an alert rule of the Helm chart uses
the count. The plan is not changed, because every decision is checked again before it is carried out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import structlog

from hai_backend.domain.scheduling.plan import Plan, Start, Suspend
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.invariants import violations

log = structlog.get_logger(__name__)

_INTERVAL = 60.0  # shortest time between two checks, in seconds
# After a check, the next one is due after this multiple of its duration, so that checks use at most 0.5 % of a core.
_REST = 200.0
_LOGGED = 20  # the largest number of violations of one pass that are logged


class Counts(Protocol):
    """The metrics of checks."""

    def plan_checked(self) -> None: ...
    def plan_violated(self, rule: str) -> None: ...


class PlanCheck:
    """Checks passes that start or suspend tasks, if enough time has passed since the last check."""

    def __init__(
        self, policy: Policy, counts: Counts, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy = policy
        self._counts = counts
        self._monotonic = monotonic
        self._not_before = monotonic()

    def due(self, plan: Plan) -> bool:
        """Return whether this pass must be checked."""
        decides = any(isinstance(decision, Start | Suspend) for decision in plan.decisions)
        return decides and self._monotonic() >= self._not_before

    def check(self, cache: SchedulerCache, plan: Plan) -> None:
        """Check the plan that `cache` has just made. May run in a thread, if the cache is not updated meanwhile."""
        began = self._monotonic()
        snapshot, complete = cache.snapshot(), Plan(0, plan.decisions + tuple(cache.waits()))
        for number, (rule, message) in enumerate(violations(snapshot, complete, self._policy)):
            self._counts.plan_violated(rule)
            if number < _LOGGED:
                log.error("a scheduling pass broke an invariant", rule=rule, what=message)
        self._counts.plan_checked()
        ended = self._monotonic()
        self._not_before = ended + max(_INTERVAL, _REST * (ended - began))
