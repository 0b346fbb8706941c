"""The parts of the server that TaskService and QueueQueries need. A separate module, because both import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hai_backend.api.protocols import Cluster, Scheduling, TaskManager
from hai_backend.api.scheduling.forecasts import Forecasts
from hai_backend.api.scheduling.what_if import WhatIf
from hai_backend.api.tasks.submission import Submission
from hai_backend.api.watch.cache import WatchCache
from hai_backend.auth.directory import Directory
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.metrics.gpus import GpuStates
from hai_backend.domain.task import Task
from hai_backend.domain.timing import Timing
from hai_backend.lifecycle.goodput import Goodput
from hai_backend.logs.dropped import Dropped
from hai_backend.store.base import Store


@dataclass(frozen=True, slots=True)
class TaskDeps:
    task_manager: TaskManager
    store: Store
    scheduling: Scheduling
    cluster: Cluster
    directory: Directory
    submission: Submission
    watch_cache: WatchCache
    clock: Clock
    goodput: Callable[[Task], Goodput]
    with_unsaved: Callable[[Task], Task]  # the task with reports that are not stored yet
    what_if: WhatIf
    forecasts: Forecasts
    dropped_logs: Callable[[int, int], Mapping[int, Dropped]]  # of a task and run, by rank
    gpus: GpuStates
    timing: Timing = field(default_factory=Timing)
