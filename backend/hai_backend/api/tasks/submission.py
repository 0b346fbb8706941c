"""Everything that a submission is judged by, gathered for validate()."""

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
from hai_backend.api.tasks.validation.validate import checked_level, validate
from hai_backend.api.workspaces.pins import WorkspacePins
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity, require_oneself
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.errors import Conflict, HaiError, Invalid, Violation
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import TaskSpec, TaskType, letters
from hai_backend.domain.task import Task, TaskState
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.store.base import Store, TaskFilter, TaskQuery

_REQUEST_ID_CHARS = 64


@dataclass(frozen=True, slots=True)
class ContainerTerms:
    """What the settings say of dev containers."""

    per_user: int = 0  # 0: any number
    lifetimes: Mapping[str, int] = field(default_factory=dict)  # by kind


class Submission:
    """Check submissions; `check` touches nothing."""

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
        storage: MountRules | None = None,
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
        self._storage = storage
        self._on_the_way: list[tuple[str, str, TaskSpec]] = []  # by user and request_id
        self._predecessors = Predecessors(TaskAccess(task_manager, directory))

    def level(self, task: Task, number: int) -> Priority:
        """A new level for a task, whoever asks. Raises Invalid: no such level, or its owner's quota rules it out."""
        return checked_level(task.spec.resource, number, self._context(task.user))

    def _context(
        self,
        user: str,
        has_right: Callable[[str], bool] = lambda right: False,
        request_id: str = "",
    ) -> SubmitContext:
        """What tasks of `user` are judged by."""
        coming = [
            spec
            for owner, request, spec in self._on_the_way
            if owner == user and not (request and request == request_id)  # it may be sent twice
        ]
        return SubmitContext(
            user=user,
            capacity=self._capacity.groups(),
            has_right=has_right,
            quotas=self._directory.quota_rows_of(user, self._clock.now()),
            shares=self._directory.share_rows_of(user),
            policy=self._policy,
            unfinished=self._task_manager.unfinished_of(user) + len(coming),
            letters=self._task_manager.spec_length_of(user) + sum(map(letters, coming)),
            containers=self._containers_of(user, coming),
            containers_allowed=self._containers.per_user,
            lifetimes=self._containers.lifetimes,
        )

    def _containers_of(self, user: str, coming: Sequence[TaskSpec]) -> int:
        """Counted only where there is a limit: every submission would pay for it."""
        if not self._containers.per_user:
            return 0
        mine = (t.spec for t in self._task_manager.unfinished().values() if t.user == user)
        return sum(spec.task_type is TaskType.JUPYTER for spec in (*mine, *coming))

    async def submit(self, identity: Identity, request: pb.CreateTaskRequest) -> Task:
        """Durable on return. Raises Invalid, Exhausted or Conflict.

        A request that has made its task is answered with it, whatever would be said by now of one like it. That is
        looked up where it would be refused only: a read costs as much as the write, which answers the same.
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
        checked = self._checked(identity, request)
        with self._coming(identity.name, request.request_id, checked):
            spec, note = await self._pinned(identity, checked)
            return await self._task_manager.submit(identity.name, spec, request.request_id, note)

    @contextmanager
    def _coming(self, user: str, request_id: str, spec: TaskSpec) -> Iterator[None]:
        """Not in the ledger yet: of many at once each would find that there is room for it."""
        mine = user, request_id, spec
        self._on_the_way.append(mine)
        try:
            yield
        finally:
            self._on_the_way.remove(mine)

    async def check(self, identity: Identity, request: pb.CreateTaskRequest) -> Task:
        """The task as it would be, with id 0. Raises what `submit` would."""
        _require_request_id(request.request_id)
        spec, _ = await self._pinned(identity, self._checked(identity, request))
        await self._name_is_free(identity.name, spec.name)
        return self._as_task(identity, spec)

    def _as_task(self, identity: Identity, spec: TaskSpec) -> Task:
        """As it would be, with id 0."""
        now, wanted = self._clock.now(), [after.task for after in spec.options.after]
        return Task(
            0,
            identity.name,
            spec,
            TaskState.WAITING_INIT,
            spec.priority,
            now,
            tags=spec.options.tags,
            awaited=tuple(first for first in wanted if first in self._task_manager.unfinished()),
        )

    async def _pinned(self, identity: Identity, spec: TaskSpec) -> tuple[TaskSpec, str]:
        """With the image, the environment and the revision that it means now, and what its timeline says of them.

        Raises Invalid with all of them that cannot be had.
        """
        notes = [await self._predecessors.require(identity, spec.options.after)]
        refusals: list[Invalid] = []
        for pinning in (self._images, self._environments, self._workspaces):
            try:
                if pinning is not None:
                    spec, note = await pinning.pin(identity, spec)
                    notes.append(note)
            except Invalid as error:
                refusals.append(error)
        await self._require_storage(identity, spec, refusals)
        if refusals:
            raise _joined(refusals)
        return spec, "; ".join(filter(None, notes))

    async def _require_storage(
        self, identity: Identity, spec: TaskSpec, refusals: list[Invalid]
    ) -> None:
        """The mounts that the tables give it can be; else no run of it would ever be launched."""
        try:
            if self._storage is not None:
                await self._storage.mounts(identity.name, self._as_task(identity, spec))
        except Invalid as error:
            refusals.append(error)

    def _checked(self, identity: Identity, request: pb.CreateTaskRequest) -> TaskSpec:
        context = self._context(identity.name, identity.has_right, request.request_id)
        spec = validate(request.spec, context)
        require_oneself(identity, spec, "a dev container")
        return spec

    async def _name_is_free(self, user: str, name: str) -> None:
        unfinished = frozenset(TaskState) - {TaskState.FINISHED}
        wanted = TaskFilter(users=frozenset({user}), names=(name,), states=unfinished)
        page = await self._store.find_tasks(TaskQuery(wanted, page_size=100))
        for task in page.tasks:
            if task.spec.name == name:  # a star in a name is a wildcard to the filter
                raise Conflict(
                    f"you have an unfinished task {name!r} already: {task.id}", reason="NAME_TAKEN"
                )


def _joined(refusals: Sequence[Invalid]) -> Invalid:
    """All that is wrong, under the reason that it has in common."""
    reasons = {error.reason for error in refusals}
    violations = tuple(each for error in refusals for each in error.violations)
    return Invalid(violations, reason=reasons.pop() if len(reasons) == 1 else "INVALID")


def _require_request_id(said: str) -> None:
    if len(said) > _REQUEST_ID_CHARS or not said.isprintable():
        problem = f"must be a UUID, or at most {_REQUEST_ID_CHARS} letters"
        raise Invalid((Violation("request_id", problem),))
