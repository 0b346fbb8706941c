"""The state of the fake server in memory: tasks, nodes, users and others, and a clock that only tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from hai.client.errors import NotFound, Unreachable
from hai.v1.artifact_pb2 import Artifact, ArtifactDirection
from hai.v1.audit_service_pb2 import AuditRow
from hai.v1.dataset_pb2 import Dataset
from hai.v1.environment_pb2 import Environment
from hai.v1.environment_service_pb2 import EnvironmentDescription
from hai.v1.image_pb2 import Image, Registry
from hai.v1.log_service_pb2 import LogLine
from hai.v1.message_service_pb2 import Message as StoredMessage
from hai.v1.node_pb2 import NODE_STATE_READY, Node, NodeTenant
from hai.v1.policy_pb2 import SchedulingPolicy
from hai.v1.port_pb2 import Port
from hai.v1.storage_pb2 import MountRule
from hai.v1.task_pb2 import (
    RANK_STATE_RUNNING,
    RANK_STATE_STOPPED,
    RUN_STATE_ENDED,
    RUN_STATE_RUNNING,
    TASK_OUTCOME_CANCELED,
    TASK_OUTCOME_FAILED,
    TASK_OUTCOME_SUCCEEDED,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    TASK_STATE_SUSPENDED,
    TASK_STATE_WAITING_INIT,
    Rank,
    Run,
    Task,
    TaskEvent,
    TaskOutcome,
)
from hai.v1.task_spec_pb2 import AfterSpec
from hai.v1.usage_service_pb2 import ClusterPoint, UsagePoint
from hai.v1.user_pb2 import Grant, Quota, Share, Token, User
from hai.v1.webhook_service_pb2 import Webhook
from hai.v1.workspace_pb2 import Workspace

M = TypeVar("M", bound=Message)

START_TIME = 1_800_000_000.0


@dataclass(slots=True)
class World:
    """The only mutable state. Changes of tasks and nodes call `changed` or `node_changed`, which wake watchers."""

    user: str = "alice"
    now: float = START_TIME
    reachable: bool = True
    version: int = 0
    tasks: dict[int, Task] = field(default_factory=dict)
    runs: dict[int, list[Run]] = field(default_factory=dict)
    events: dict[int, list[TaskEvent]] = field(default_factory=dict)
    lines: dict[int, list[LogLine]] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # of the next submissions
    nodes: dict[str, Node] = field(default_factory=dict)
    packed: set[str] = field(default_factory=set)
    policies: dict[str, SchedulingPolicy] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    quotas: dict[tuple[str, bool, str, int], Quota] = field(default_factory=dict)
    shares: dict[tuple[str, str], Share] = field(default_factory=dict)
    tokens: dict[int, Token] = field(default_factory=dict)
    grants: dict[tuple[str, bool, str], Grant] = field(default_factory=dict)
    artifacts: dict[tuple[str, str, str], Artifact] = field(default_factory=dict)
    task_artifacts: dict[tuple[int, ArtifactDirection.ValueType], tuple[str, str, str]] = field(
        default_factory=dict
    )
    datasets: dict[tuple[str, str], Dataset] = field(default_factory=dict)
    environments: dict[tuple[str, str], Environment] = field(default_factory=dict)
    descriptions: dict[tuple[str, str], EnvironmentDescription] = field(default_factory=dict)
    wheels: set[str] = field(default_factory=set)
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    webhooks: dict[tuple[str, str], Webhook] = field(default_factory=dict)  # owner, name
    ports: dict[int, Port] = field(default_factory=dict)
    workspaces: dict[tuple[str, str], Workspace] = field(default_factory=dict)
    mount_rules: dict[int, MountRule] = field(default_factory=dict)
    images: dict[str, Image] = field(default_factory=dict)
    registries: dict[str, Registry] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)  # by reference with a tag
    usage: dict[int, list[tuple[int, int, UsagePoint]]] = field(default_factory=dict)  # rank, run
    cluster_usage: list[ClusterPoint] = field(default_factory=list)
    audit: list[AuditRow] = field(default_factory=list)  # oldest first
    _changed_event: asyncio.Event = field(default_factory=asyncio.Event)

    def groups_of(self, user: str) -> list[str]:
        """Return the user groups of a user. An unknown user has none."""
        return list(self.users[user].groups) if user in self.users else []

    def time(self) -> Timestamp:
        """Return the current time."""
        result = Timestamp()
        result.FromMicroseconds(round(self.now * 1e6))
        return result

    def minute(self) -> Timestamp:
        """Return the start of the current minute."""
        return Timestamp(seconds=int(self.now) // 60 * 60)

    def task(self, id: int) -> Task:
        """Return the task itself, not a copy. Raises NotFound."""
        if id not in self.tasks:
            raise NotFound(f"there is no task {id}", hint="`hai list` shows your tasks")
        return self.tasks[id]

    def changed(self, task: Task, kind: str, reason: str = "") -> Task:
        """Give a change of a task a version and an event, and wake watchers. Return a copy of the task."""
        self.version += 1
        task.version = self.version
        task.etag = str(self.version)
        if task.run_count:
            task.run.CopyFrom(self.runs[task.id][-1])
        self._record(task, kind, reason)
        self.wake()
        return copy(task)

    def _record(self, task: Task, kind: str, reason: str) -> None:
        timeline = self.events.setdefault(task.id, [])
        event = TaskEvent(
            sequence=len(timeline) + 1,
            time=self.time(),
            actor=self.user,
            kind=kind,
            reason=reason,
            run=task.run_count,
            rank=-1,
        )
        timeline.append(event)

    def node_changed(self, node: Node) -> Node:
        """Give a change of a node a version and wake watchers. Return a copy of the node."""
        self.version += 1
        node.version = self.version
        node.update_time.CopyFrom(self.time())
        self.wake()
        return copy(node)

    def wake(self) -> None:
        """Wake every stream."""
        self._changed_event.set()
        self._changed_event = asyncio.Event()

    async def next_change(self) -> None:
        """Wait for the next change. Raises Unreachable if the server became unreachable."""
        await self._changed_event.wait()
        if not self.reachable:
            raise Unreachable("the connection to the fake server was lost")


class FakeService:
    """A service of the fake server. Its methods have the names of the contract."""

    def __init__(self, world: World) -> None:
        self._world = world


def copy(message: M) -> M:
    """Return a copy for a caller, who may change it."""
    result = type(message)()
    result.CopyFrom(message)
    return result


def is_waiting(task: Task) -> bool:
    """Return whether a task neither runs nor has finished."""
    return task.state in (TASK_STATE_WAITING_INIT, TASK_STATE_SUSPENDED)


def make_node(name: str, group: str = "default", gpus: int = 8) -> Node:
    """Return a ready node."""
    return Node(name=name, group=group, state=NODE_STATE_READY, gpus=gpus, cpus=64)


def start_run(world: World, task: Task, nodes: tuple[str, ...]) -> Task:
    """Start a run of a waiting task on these nodes."""
    number = task.run_count + 1
    ranks = [Rank(index=i, node=n, state=RANK_STATE_RUNNING) for i, n in enumerate(nodes)]
    run = Run(number=number, state=RUN_STATE_RUNNING, ranks=ranks, priority=task.priority)
    run.create_time.CopyFrom(world.time())
    run.start_time.CopyFrom(world.time())
    world.runs.setdefault(task.id, []).append(run)
    if not task.run_count:
        task.start_time.CopyFrom(world.time())
    task.run_count = number
    task.state = TASK_STATE_RUNNING
    task.ClearField("waiting")
    _occupy(world, task, nodes)
    return world.changed(task, "RunStarted")


def silence(world: World, task: Task, ranks: Sequence[int], seconds: float) -> Task:
    """Make agents of a running task silent. Their last message was `seconds` ago."""
    silent_since = Timestamp()
    silent_since.FromMicroseconds(round((world.now - seconds) * 1e6))
    _set_silent_since(world, task, ranks, silent_since)
    return world.changed(task, "AgentSilent")


def hear(world: World, task: Task, ranks: Sequence[int]) -> Task:
    """End the silence of agents of a task."""
    _set_silent_since(world, task, ranks, None)
    return world.changed(task, "AgentHeard")


def _set_silent_since(
    world: World, task: Task, ranks: Sequence[int], since: Timestamp | None
) -> None:
    for rank in world.runs[task.id][-1].ranks:
        if rank.index in ranks:
            _mark(rank, since)
    for node in world.nodes.values():
        for tenant in node.tenants:
            if tenant.task_id == task.id and tenant.rank in ranks:
                _mark(tenant, since)
                world.node_changed(node)


def _mark(holder: Rank | NodeTenant, since: Timestamp | None) -> None:
    if since is None:
        holder.ClearField("silent_since_time")
    else:
        holder.silent_since_time.CopyFrom(since)


def end_run(world: World, task: Task, reason: str) -> None:
    """End the current run, if there is one, and free its nodes."""
    if task.state != TASK_STATE_RUNNING:
        return
    run = world.runs[task.id][-1]
    run.state = RUN_STATE_ENDED
    run.reason = reason
    run.end_time.CopyFrom(world.time())
    task.run_seconds += run.end_time.ToMicroseconds() / 1e6 - run.start_time.ToMicroseconds() / 1e6
    for rank in run.ranks:
        rank.state = RANK_STATE_STOPPED
        rank.ClearField("silent_since_time")
    _free(world, task)


def suspend_run(world: World, task: Task, reason: str) -> Task:
    """Suspend a running task."""
    end_run(world, task, reason)
    task.state = TASK_STATE_SUSPENDED
    task.suspend_count += 1
    return world.changed(task, "RunSuspended", reason)


def finish(world: World, task: Task, outcome: TaskOutcome.ValueType, reason: str) -> Task:
    """End a task."""
    end_run(world, task, reason)
    task.state = TASK_STATE_FINISHED
    task.outcome = outcome
    task.reason = reason
    task.finish_time.CopyFrom(world.time())
    task.ClearField("waiting")
    ended = world.changed(task, "TaskFinished", reason)
    for other in list(world.tasks.values()):
        if task.id in other.awaited and other.state != TASK_STATE_FINISHED:
            _predecessor_ended(world, other, task)
    return ended


def is_satisfied(after: AfterSpec, predecessor: Task) -> bool:
    """Return whether a predecessor has ended with the required outcome."""
    required = {"failed": TASK_OUTCOME_FAILED, "ended": predecessor.outcome}
    return predecessor.outcome == required.get(after.outcome, TASK_OUTCOME_SUCCEEDED)


def _predecessor_ended(world: World, task: Task, predecessor: Task) -> None:
    """Remove an ended predecessor from a task, or cancel the task because of its outcome."""
    links = (each for each in task.spec.options.after if each.task == predecessor.id)
    # inherited from another predecessor
    after = next(links, AfterSpec(task=predecessor.id, outcome="ended"))
    task.awaited.remove(predecessor.id)
    if not is_satisfied(after, predecessor):
        finish(
            world,
            task,
            TASK_OUTCOME_CANCELED,
            f"task {predecessor.id} has ended with another outcome",
        )
        return
    task.awaited.extend(number for number in predecessor.awaited if number not in task.awaited)
    if not task.awaited:
        task.waiting.reason, task.waiting.message = "NOT_ENOUGH_NODES", "0 nodes are free"
    world.changed(task, "PredecessorEnded")


def _occupy(world: World, task: Task, nodes: tuple[str, ...]) -> None:
    for rank, name in enumerate(nodes):
        if name in world.nodes:
            tenant = NodeTenant(
                task_id=task.id,
                task_name=task.name,
                user=task.user,
                run=task.run_count,
                rank=rank,
            )
            world.nodes[name].tenants.append(tenant)
            world.node_changed(world.nodes[name])


def _free(world: World, task: Task) -> None:
    for node in world.nodes.values():
        tenants = [t for t in node.tenants if t.task_id != task.id]
        if len(tenants) < len(node.tenants):
            del node.tenants[:]
            node.tenants.extend(tenants)
            world.node_changed(node)
