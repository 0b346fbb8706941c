"""The specification of a task, validated and with all defaults filled in.

The shape is that of hai.v1.TaskSpec (the HAI yaml schema, version 2); see its comments for the meaning of each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hai_backend.domain.priority import Priority

BEFORE_LEAVING = "before_leaving"  # a value of OptionsSpec.durable
JUPYTER = "jupyter"
"""The built-in service, which is reachable only through the proxy of the server."""


class TaskType(StrEnum):
    """The task types of HAI. The last four are not accepted any more, but stored tasks and decisions may have them."""

    TRAINING = "training"
    JUPYTER = "jupyter"
    VIRTUAL = "virtual"
    VALIDATION = "validation"
    BACKGROUND = "background"
    UPGRADE = "upgrade"


class OnEnd(StrEnum):
    """What a policy does when a part of the gang ends."""

    RESTART = "restart"
    COMPLETE = "complete"
    FAIL = "fail"
    IGNORE = "ignore"


class AfterOutcome(StrEnum):
    """How a task must end for tasks that depend on it to start."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ENDED = "ended"


class ServiceType(StrEnum):
    HTTP = "http"
    TCP = "tcp"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    entrypoint: str
    workspace: str = ""
    parameters: tuple[str, ...] = ()
    environments: Mapping[str, str] = field(default_factory=dict)
    entrypoint_executable: bool = False
    git_remote_repo: str = ""
    git_target_revision: str = ""


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    image: str = "default"
    group: str = "default"
    zone: str = ""
    node_count: int = 1
    is_spot: bool = False
    gpu: int = 0
    cpu: int = 0
    memory: int = 0  # GB


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    name: str
    type: ServiceType
    port: int = 0
    rank: tuple[int, ...] = (0,)
    startup_script: str = ""
    rewrite_uri: bool = False


@dataclass(frozen=True, slots=True)
class NodeResourceSpec:
    cpu: int = 0
    memory: int = 0  # GB


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    time: int = 0
    recorder: str = ""
    interval: Mapping[str, int] = field(default_factory=dict)
    warmup: int = 0
    trace: bool = False
    follow_task: bool = False


@dataclass(frozen=True, slots=True)
class AfterSpec:
    """A task that must end first, and how."""

    task: int
    outcome: AfterOutcome = AfterOutcome.SUCCEEDED


@dataclass(frozen=True, slots=True)
class OptionsSpec:
    whole_life_state: int = 0
    mount_code: int = 2
    py_venv: str = ""
    override_node_resource: NodeResourceSpec | None = None
    profile: ProfileSpec | None = None
    tags: tuple[str, ...] = ()
    watchdog_time: int = 1800  # seconds
    record_git_revision: bool = False
    shared_in_group: bool = False
    assigned_nodes: tuple[str, ...] = ()
    sidecar: tuple[str, ...] = ()
    fffs_enable_fuse: bool = False
    timeout: int = 0  # seconds of one run; 0 means unlimited
    time_limit: int = 0  # seconds of all runs; 0 means unlimited
    max_retries: int = 0
    suspend_signal: str = ""
    ack_within: float = 5.0
    save_within: float = 5.0
    env_fallback: bool = False
    idle_timeout: int = 0  # seconds without activity; 0 means unlimited
    lifetime: int = 0  # seconds until a dev container is suspended; 0 means unlimited
    after: tuple[AfterSpec, ...] = ()
    durable: str = ""  # after_leaving or before_leaving; if empty, as the server's setting says


@dataclass(frozen=True, slots=True)
class RoleSpec:
    name: str
    count: int
    entrypoint: str = ""
    parameters: tuple[str, ...] = ()
    environments: Mapping[str, str] = field(default_factory=dict)
    gpu: int = 0
    cpu: int = 0
    memory: int = 0  # GB


@dataclass(frozen=True, slots=True)
class PolicySpec:
    on_pod_failed: OnEnd = OnEnd.FAIL
    on_pod_evicted: OnEnd = OnEnd.RESTART
    on_role_completed: OnEnd = OnEnd.IGNORE
    min_available: int = 0  # 0 means all ranks


@dataclass(frozen=True, slots=True)
class TaskSpec:
    name: str
    spec: ProgramSpec
    task_type: TaskType = TaskType.TRAINING
    priority: Priority = Priority.AUTO
    resource: ResourceSpec = ResourceSpec()
    services: tuple[ServiceSpec, ...] = ()
    options: OptionsSpec = OptionsSpec()
    roles: tuple[RoleSpec, ...] = ()
    policies: PolicySpec = PolicySpec()
    version: int = 2


_DEPENDENCY_CHARS = 200  # an estimate, because a dependency is stored in several lists


def count_characters(spec: TaskSpec) -> int:
    """Count the characters of the parts that may be long, to estimate the memory that the server needs."""
    variables = (spec.spec.environments, *(role.environments for role in spec.roles))
    texts = [text for each in variables for pair in each.items() for text in pair]
    texts += [text for role in spec.roles for text in role.parameters]
    texts += [service.startup_script for service in spec.services]
    awaited = _DEPENDENCY_CHARS * len(spec.options.after)
    return awaited + sum(map(len, (*texts, *spec.options.sidecar)))
