"""What the services of tasks stand on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hai_backend.auth.directory import Directory
from hai_backend.domain.task import Task
from hai_backend.domain.timing import Timing
from hai_backend.loops.clock import Clock
from hai_backend.services.forecasting import Forecasting
from hai_backend.services.foresight import Foresight
from hai_backend.services.ports import Cluster, Ledger, Scheduling
from hai_backend.services.submitting import Submitting
from hai_backend.store.base import Store
from hai_backend.tasks.goodput import Goodput


@dataclass(frozen=True, slots=True)
class TaskRooms:
    """Of one server."""

    ledger: Ledger
    store: Store
    scheduling: Scheduling
    cluster: Cluster
    directory: Directory
    submitting: Submitting
    clock: Clock
    goodput: Callable[[Task], Goodput]
    foresight: Foresight
    forecasting: Forecasting
    timing: Timing = field(default_factory=Timing)
