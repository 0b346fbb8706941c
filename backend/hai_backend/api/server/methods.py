"""What every call needs, and whether it changes anything: one row per RPC of every service that we answer.

A call without a row is refused; a test holds this table against the descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hai_backend.domain.accounts.right import Right
from hai_backend.domain.accounts.user import Role, TokenScope


class Door(StrEnum):
    """Who is let in before roles count."""

    OPEN = "OPEN"  # anybody
    RUN_TOKEN = "RUN_TOKEN"  # agents; the service checks the token itself
    TOKEN = "TOKEN"  # users


@dataclass(frozen=True, slots=True)
class Rule:
    door: Door = Door.TOKEN
    scope: TokenScope = TokenScope.READ
    role: Role = Role.USER
    right: Right | None = None  # stands for the role
    mutates: bool = False  # audited, and finished even when the caller hangs up
    in_timeline: bool = False  # a success begins a task's timeline, which says who: no row of audit


_OPEN = Rule(Door.OPEN)
_AGENT = Rule(Door.RUN_TOKEN)
_LOOK = Rule()
_SUBMIT = Rule(scope=TokenScope.SUBMIT, mutates=True, in_timeline=True)
_TRY = Rule(scope=TokenScope.SUBMIT)
_STEER = Rule(scope=TokenScope.SUBMIT, mutates=True)
_LEASE = replace(_STEER, in_timeline=True)  # the row of its push says it
_ACCOUNT = Rule(scope=TokenScope.ALL, mutates=True)
_OPERATE = Rule(scope=TokenScope.ALL, role=Role.OPERATOR, mutates=True)
_NODES = replace(_OPERATE, right=Right.MANAGE_NODES)
_STORAGE = replace(_NODES, right=Right.MANAGE_STORAGE)
_LOOK_AT_ALL = Rule(role=Role.OPERATOR)
_LOOK_AT_USERS = replace(_LOOK_AT_ALL, right=Right.MANAGE_USERS)
_ADMINISTER = Rule(scope=TokenScope.ALL, role=Role.ADMIN, mutates=True)
_USERS = replace(_ADMINISTER, right=Right.MANAGE_USERS)
_QUOTAS = replace(_ADMINISTER, right=Right.MANAGE_QUOTAS)
_IMAGES = replace(_ADMINISTER, right=Right.MANAGE_IMAGES)

_TABLE = {
    "TaskService": {
        "CreateTask": _SUBMIT,
        "DryRunTask": _TRY,
        "GetTask": _LOOK,
        "ListTasks": _LOOK,
        "ListRuns": _LOOK,
        "ListTaskEvents": _LOOK,
        "WatchTasks": _LOOK,
        "StopTask": _STEER,
        "SuspendTask": _STEER,
        "ResumeTask": _STEER,
        "UpdateTaskPriority": _STEER,
        "MoveTask": _STEER,
        "TagTask": _STEER,
        "StarTask": _STEER,
        "ExplainTask": _LOOK,
        "ListQueue": _LOOK,
    },
    "NodeService": {
        "ListNodes": _LOOK,
        "GetNode": _LOOK,
        "WatchNodes": _LOOK,
        "CordonNode": _NODES,
        "UncordonNode": _NODES,
        "DrainNode": _NODES,
        "LabelNode": _NODES,
        "ListGroups": _LOOK,
        "UpdateGroup": _NODES,
        "GetSnapshot": _LOOK_AT_ALL,
    },
    "UserService": {
        "WhoAmI": _LOOK,
        "ListUsers": _LOOK_AT_USERS,
        "CreateUser": _USERS,
        "UpdateUser": _USERS,
        "ListQuotas": _LOOK,
        "SetQuota": _QUOTAS,
        "DeleteQuota": _QUOTAS,
        "ListShares": _LOOK,
        "SetShare": _QUOTAS,
        "DeleteShare": _QUOTAS,
        "ListRights": _LOOK,
        "GrantRight": _ADMINISTER,
        "RevokeRight": _ADMINISTER,
        "ListTokens": _LOOK,
        "CreateToken": _ACCOUNT,
        "RevokeToken": _ACCOUNT,
    },
    "ImageService": {
        "ListImages": _LOOK,
        "SetImage": _IMAGES,
        "DeleteImage": _IMAGES,
        "ListImageTags": _LOOK,
        "CheckImage": _LOOK,
        "ListRegistries": Rule(role=Role.ADMIN, right=Right.MANAGE_IMAGES),
        "SetRegistry": _IMAGES,
        "DeleteRegistry": _IMAGES,
    },
    "PortService": {
        "ListPorts": _LOOK,
        "CreatePort": _STEER,
        "BindPort": _STEER,
        "DeletePort": _STEER,
    },
    "ArtifactService": {
        "ListArtifacts": _LOOK,
        "GetArtifact": _LOOK,
        "CreateArtifact": _STEER,
        "UpdateArtifact": _STEER,
        "DeleteArtifact": _STEER,
        "ListTaskArtifacts": _LOOK,
        "MapArtifact": _STEER,
        "UnmapArtifact": _STEER,
    },
    "DatasetService": {
        "ListDatasets": _LOOK,
        "GetDataset": _LOOK,
        "CreateDataset": _STEER,
        "DeleteDataset": _STEER,
    },
    "EnvironmentService": {
        "ListEnvironments": _LOOK,
        "GetEnvironment": _LOOK,
        "RegisterEnvironment": _STEER,
        "DeleteEnvironment": _STEER,
        "BuildEnvironment": _STEER,
        "ExportEnvironment": _LOOK,
    },
    "MessageService": {
        "ListMessages": _LOOK,
        "CreateMessage": _OPERATE,
        "DeleteMessage": _OPERATE,
    },
    "WebhookService": {
        "ListWebhooks": _LOOK,
        "SetWebhook": _ACCOUNT,
        "DeleteWebhook": _ACCOUNT,
        "TestWebhook": _ACCOUNT,
    },
    "StorageService": {
        "ListMounts": _LOOK,
        "ListMountRules": replace(_LOOK_AT_ALL, right=Right.MANAGE_STORAGE),
        "CreateMountRule": _STORAGE,
        "DeleteMountRule": _STORAGE,
    },
    "WorkspaceService": {
        "ListWorkspaces": _LOOK,
        "GetWorkspace": _LOOK,
        "CreateWorkspace": _STEER,
        "DeleteWorkspace": _STEER,
        "LeaseWorkspace": _LEASE,
        "GetTree": _LOOK,
        "PushTree": _STEER,
        "FetchFiles": _LOOK,
        "ListRevisions": _LOOK,
        "RestoreRevision": _STEER,
        "TagRevision": _STEER,
        "UntagRevision": _STEER,
        "ListTaskTrees": _LOOK,
        "DeleteTaskTree": _STEER,
        "WatchWorkspace": _LOOK,
    },
    "LogService": {"TailLogs": _LOOK},
    "WatchService": {"Watch": _LOOK},
    "UsageService": {
        "ListTaskUsage": _LOOK,
        "ListClusterUsage": _LOOK,
        "ListNodeUsage": _LOOK,
    },
    "AuditService": {"ListAuditRows": _LOOK_AT_ALL},
    "ServerService": {"GetServerInfo": _OPEN},
    "TunnelService": {"OpenTunnel": _STEER},
    "ContainerService": {
        "GetContainer": _LOOK,
        "OpenContainer": _STEER,
        "ControlService": _STEER,
        "RenewContainer": _STEER,
        "DeleteContainer": _STEER,
    },
    "AgentService": {"Attach": _AGENT, "Carry": _AGENT},
}

RULES: dict[str, Rule] = {
    f"/hai.v1.{service}/{method}": rule
    for service, rules in _TABLE.items()
    for method, rule in rules.items()
} | {
    "/grpc.health.v1.Health/Check": _OPEN,
    "/grpc.health.v1.Health/List": _OPEN,
    "/grpc.health.v1.Health/Watch": _OPEN,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _OPEN,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": _OPEN,
}


def service_names() -> list[str]:
    """Full names of our own services, in the order of the table."""
    return [f"hai.v1.{service}" for service in _TABLE]
