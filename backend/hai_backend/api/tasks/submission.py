"""Submits tasks: collects what `validate` needs, pins images, environments and workspaces, and stores the task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.environments.choice import EnvironmentChoice
from hai_backend.api.images.images import Images
from hai_backend.api.nodes.group_capacity import Capacity
from hai_backend.api.protocols import TaskManager
from hai_backend.api.storage.storage import MountRules
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.tasks.predecessors import Predecessors
from hai_backend.api.tasks.validation.fit import SubmitContext
from hai_backend.api.tasks.validation.validate import check_level, validate
from hai_backend.api.workspaces.pins import WorkspacePins
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity, require_runs_as_self
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.tasks.save_history import SaveHistory
from hai_backend.domain.errors import Conflict, HaiError, Invalid, Violation
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import TaskSpec, TaskType, count_characters
from hai_backend.domain.task import Task, TaskState
from hai_backend.lifecycle.saving import describe_short_save_within
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.store.base import Store, TaskFilter, TaskQuery

_REQUEST_ID_CHARS = 64


@dataclass(frozen=True, slots=True)
class ContainerTerms:
    """The limits of dev containers in the settings."""

    per_user: int = 0  # 0 means no limit
    lifetimes: Mapping[str, int] = field(
        default_factory=dict
    )  # maximum seconds by kind of container


class Submission:
    """Checks and submits tasks."""

    def __init__(
        self,
        task_manager: TaskManager,
        store: Store,
        directory: Directory,
        capacity: Capacity,
        policy: Policy,
        clock: Clock,
        *,
        images: Images | None = None,
        containers: ContainerTerms = ContainerTerms(),
        environments: EnvironmentChoice | None = None,
        workspaces: WorkspacePins | None = None,
        mount_rules: MountRules | None = None,
        save_history: SaveHistory | None = None,
    ) -> None:
        self._task_manager = task_manager
        self._store = store
        self._directory = directory
        self._capacity = capacity
        self._policy = policy
        self._clock = clock
        self._images = images
        self._containers = containers
        self._environments = environments
        self._workspaces = workspaces
        self._mount_rules = mount_rules
        self._save_history = save_history
        self._pending: list[tuple[str, str, TaskSpec]] = []  # user, request id and spec
        self._predecessors = Predecessors(TaskAccess(task_manager, directory))

    def check_level(self, task: Task, number: int) -> Priority:
        """Return the level with this number. Raises Invalid if it is unknown, or if no quota of the owner allows it."""
        return check_level(task.spec.resource, number, self._context(task.user))

    def _context(
        self,
        user: str,
        has_right: Callable[[str], bool] = lambda right: False,
        request_id: str = "",
    ) -> SubmitContext:
        """Return the limits and the present use of a user. A pending request with the same id is not counted."""
        pending = [
            spec
            for owner, pending_id, spec in self._pending
            if owner == user and not (pending_id and pending_id == request_id)
        ]
        return SubmitContext(
            user=user,
            capacity=self._capacity.groups(),
            has_right=has_right,
            quotas=self._directory.quota_rows_of(user, self._clock.now()),
            shares=self._directory.share_rows_of(user),
            policy=self._policy,
            unfinished=self._task_manager.unfinished_of(user) + len(pending),
            spec_chars=self._task_manager.spec_length_of(user)
            + sum(map(count_characters, pending)),
            containers=self._count_containers(user, pending),
            containers_allowed=self._containers.per_user,
            lifetimes=self._containers.lifetimes,
        )

    def _count_containers(self, user: str, pending: Sequence[TaskSpec]) -> int:
        """Return the number of unfinished dev containers of a user, or 0 without counting if there is no limit."""
        if not self._containers.per_user:
            return 0
        unfinished = (t.spec for t in self._task_manager.unfinished().values() if t.user == user)
        return sum(spec.task_type is TaskType.JUPYTER for spec in (*unfinished, *pending))

    async def submit(self, identity: Identity, request: pb.CreateTaskRequest) -> Task:
        """Store a task and return it. Raises Invalid, Exhausted or Conflict.

        A repeated request gets the task of the first one, even if a new task would be refused now. Only after a refusal
        is that task looked up here: otherwise the store finds it when it writes the request again.
        """
        _require_request_id(request.request_id)
        try:
            return await self._submit(identity, request)
        except HaiError:
            task = await self._task_manager.submitted(identity.name, request.request_id)
            if task is None:
                raise
            return task

    async def _submit(self, identity: Identity, request: pb.CreateTaskRequest) -> Task:
        valid = self._validate(identity, request)
        with self._count_as_pending(identity.name, request.request_id, valid):
            spec, note = await self._pin(identity, valid)
            return await self._task_manager.submit(identity.name, spec, request.request_id, note)

    @contextmanager
    def _count_as_pending(self, user: str, request_id: str, spec: TaskSpec) -> Iterator[None]:
        """Count the task against limits before it is stored. Else concurrent requests could exceed the limits."""
        entry = user, request_id, spec
        self._pending.append(entry)
        try:
            yield
        finally:
            self._pending.remove(entry)

    async def check(self, identity: Identity, request: pb.CreateTaskRequest) -> Task:
        """Return the task that `submit` would store, with id 0. Raises the same errors and changes nothing."""
        _require_request_id(request.request_id)
        spec, _ = await self._pin(identity, self._validate(identity, request))
        await self._require_free_name(identity.name, spec.name)
        return self._make_task(identity, spec)

    async def warnings(self, task: Task) -> list[str]:
        """Return what may go wrong with a submitted task. An unavailable store gives no warnings."""
        if self._save_history is None or task.spec.task_type is not TaskType.TRAINING:
            return []
        try:
            last = await self._save_history.last(task.user, task.spec.name)
        except HaiError:
            return []
        if last is None:
            return []
        warning = describe_short_save_within(task.spec, last.task_id, last.seconds)
        return [warning] if warning else []

    def _make_task(self, identity: Identity, spec: TaskSpec) -> Task:
        now, predecessors = self._clock.now(), [after.task for after in spec.options.after]
        return Task(
            0,
            identity.name,
            spec,
            TaskState.WAITING_INIT,
            spec.priority,
            now,
            tags=spec.options.tags,
            awaited=tuple(p for p in predecessors if p in self._task_manager.unfinished()),
        )

    async def _pin(self, identity: Identity, spec: TaskSpec) -> tuple[TaskSpec, str]:
        """Return the spec with its present image digest, environment and revision, and a note for the timeline.

        Raises one Invalid that names all of the three that do not exist.
        """
        notes = [await self._predecessors.require(identity, spec.options.after)]
        refusals: list[Invalid] = []
        for pinner in (self._images, self._environments, self._workspaces):
            try:
                if pinner is not None:
                    spec, note = await pinner.pin(identity, spec)
                    notes.append(note)
            except Invalid as error:
                refusals.append(error)
        await self._check_mounts(identity, spec, refusals)
        if refusals:
            raise _join(refusals)
        return spec, "; ".join(filter(None, notes))

    async def _check_mounts(
        self, identity: Identity, spec: TaskSpec, refusals: list[Invalid]
    ) -> None:
        """Check that the mount rules give the task valid mounts. Without them no run could be launched."""
        try:
            if self._mount_rules is not None:
                await self._mount_rules.mounts(identity.name, self._make_task(identity, spec))
        except Invalid as error:
            refusals.append(error)

    def _validate(self, identity: Identity, request: pb.CreateTaskRequest) -> TaskSpec:
        context = self._context(identity.name, identity.has_right, request.request_id)
        spec = validate(request.spec, context)
        require_runs_as_self(identity, spec, "a dev container")
        return spec

    async def _require_free_name(self, user: str, name: str) -> None:
        unfinished = frozenset(TaskState) - {TaskState.FINISHED}
        same_name = TaskFilter(users=frozenset({user}), names=(name,), states=unfinished)
        page = await self._store.find_tasks(TaskQuery(same_name, page_size=100))
        for task in page.tasks:
            if task.spec.name == name:  # the filter takes a star in the name as a wildcard
                raise Conflict(
                    f"you have an unfinished task {name!r} already: {task.id}", reason="NAME_TAKEN"
                )


def _join(refusals: Sequence[Invalid]) -> Invalid:
    """Return one error with all violations, and with the reason of the errors if they have the same one."""
    reasons = {error.reason for error in refusals}
    violations = tuple(each for error in refusals for each in error.violations)
    return Invalid(violations, reason=reasons.pop() if len(reasons) == 1 else "INVALID")


def _require_request_id(request_id: str) -> None:
    if len(request_id) > _REQUEST_ID_CHARS or not request_id.isprintable():
        problem = f"must be a UUID, or at most {_REQUEST_ID_CHARS} printable characters"
        raise Invalid((Violation("request_id", problem),))
