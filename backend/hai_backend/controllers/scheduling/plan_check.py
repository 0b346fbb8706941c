"""Applies the scheduler's invariants (scheduler.invariants) to a sample of the passes of the live server.

A breach is a fault of the scheduler, not of a user: it is logged as an error and counted (an alert of the chart looks
at the count); the pass itself is not changed, since every decision is checked again before it is carried out.
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

_INTERVAL = 60.0  # seconds between two checks, at least
_REST = (
    200.0  # after a check, rest for so many times its duration: half a percent of a core at most
)
_LOGGED = 20  # breaches of one pass that the log names


class Counts(Protocol):
    """Where checks are counted."""

    def plan_checked(self) -> None: ...
    def plan_violated(self, rule: str) -> None: ...


class PlanCheck:
    """Samples by time: a pass that starts or suspends something is checked when the last check is long enough ago."""

    def __init__(
        self, policy: Policy, counts: Counts, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy = policy
        self._counts = counts
        self._monotonic = monotonic
        self._not_before = monotonic()

    def due(self, plan: Plan) -> bool:
        """Whether this pass shall be checked."""
        decides = any(isinstance(decision, Start | Suspend) for decision in plan.decisions)
        return decides and self._monotonic() >= self._not_before

    def check(self, cache: SchedulerCache, plan: Plan) -> None:
        """Check what `cache` has just decided. For a thread; the cache must not be shown anything meanwhile."""
        began = self._monotonic()
        snapshot, complete = cache.snapshot(), Plan(0, plan.decisions + tuple(cache.waits()))
        for number, (rule, message) in enumerate(violations(snapshot, complete, self._policy)):
            self._counts.plan_violated(rule)
            if number < _LOGGED:
                log.error("a scheduling pass broke an invariant", rule=rule, what=message)
        self._counts.plan_checked()
        ended = self._monotonic()
        self._not_before = ended + max(_INTERVAL, _REST * (ended - began))
