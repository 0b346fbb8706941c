"""The access rule of every RPC: which credential and permissions it needs, and whether it changes anything.

A call without a rule is refused. A test compares this table with the contract.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hai_backend.domain.accounts.right import Right
from hai_backend.domain.accounts.user import Role, TokenScope


class Credential(StrEnum):
    """What a caller must present."""

    NONE = "NONE"
    RUN_TOKEN = "RUN_TOKEN"  # of an agent; the service checks it
    USER_TOKEN = "USER_TOKEN"


@dataclass(frozen=True, slots=True)
class Rule:
    credential: Credential = Credential.USER_TOKEN
    scope: TokenScope = TokenScope.READ
    role: Role = Role.USER
    right: Right | None = None  # replaces the role
    mutates: bool = False  # has an audit row, and is finished even when the caller hangs up
    in_timeline: bool = (
        False  # has no audit row if it succeeds: the timeline of the task names the caller
    )


_OPEN = Rule(Credential.NONE)
_AGENT = Rule(Credential.RUN_TOKEN)
_READ = Rule()
_SUBMIT = Rule(scope=TokenScope.SUBMIT, mutates=True, in_timeline=True)
_DRY_RUN = Rule(scope=TokenScope.SUBMIT)
_MODIFY = Rule(scope=TokenScope.SUBMIT, mutates=True)
_LEASE = replace(_MODIFY, in_timeline=True)  # the push that follows has an audit row
_ACCOUNT = Rule(scope=TokenScope.ALL, mutates=True)
_OPERATE = Rule(scope=TokenScope.ALL, role=Role.OPERATOR, mutates=True)
_NODES = replace(_OPERATE, right=Right.MANAGE_NODES)
_STORAGE = replace(_NODES, right=Right.MANAGE_STORAGE)
_READ_ALL = Rule(role=Role.OPERATOR)
_READ_USERS = replace(_READ_ALL, right=Right.MANAGE_USERS)
_ADMINISTER = Rule(scope=TokenScope.ALL, role=Role.ADMIN, mutates=True)
_USERS = replace(_ADMINISTER, right=Right.MANAGE_USERS)
_QUOTAS = replace(_ADMINISTER, right=Right.MANAGE_QUOTAS)
_IMAGES = replace(_ADMINISTER, right=Right.MANAGE_IMAGES)

_TABLE = {
    "TaskService": {
        "CreateTask": _SUBMIT,
        "DryRunTask": _DRY_RUN,
        "GetTask": _READ,
        "ListTasks": _READ,
        "ListRuns": _READ,
        "ListTaskEvents": _READ,
        "WatchTasks": _READ,
        "StopTask": _MODIFY,
        "SuspendTask": _MODIFY,
        "ResumeTask": _MODIFY,
        "UpdateTaskPriority": _MODIFY,
        "MoveTask": _MODIFY,
        "TagTask": _MODIFY,
        "StarTask": _MODIFY,
        "ExplainTask": _READ,
        "ListQueue": _READ,
    },
    "NodeService": {
        "ListNodes": _READ,
        "GetNode": _READ,
        "WatchNodes": _READ,
        "CordonNode": _NODES,
        "UncordonNode": _NODES,
        "DrainNode": _NODES,
        "LabelNode": _NODES,
        "ListGroups": _READ,
        "UpdateGroup": _NODES,
        "GetSnapshot": _READ_ALL,
    },
    "UserService": {
        "WhoAmI": _READ,
        "ListUsers": _READ_USERS,
        "CreateUser": _USERS,
        "UpdateUser": _USERS,
        "ListQuotas": _READ,
        "SetQuota": _QUOTAS,
        "DeleteQuota": _QUOTAS,
        "ListShares": _READ,
        "SetShare": _QUOTAS,
        "DeleteShare": _QUOTAS,
        "ListRights": _READ,
        "GrantRight": _ADMINISTER,
        "RevokeRight": _ADMINISTER,
        "ListTokens": _READ,
        "CreateToken": _ACCOUNT,
        "RevokeToken": _ACCOUNT,
    },
    "ImageService": {
        "ListImages": _READ,
        "SetImage": _IMAGES,
        "DeleteImage": _IMAGES,
        "ListImageTags": _READ,
        "CheckImage": _READ,
        "ListRegistries": Rule(role=Role.ADMIN, right=Right.MANAGE_IMAGES),
        "SetRegistry": _IMAGES,
        "DeleteRegistry": _IMAGES,
    },
    "PortService": {
        "ListPorts": _READ,
        "CreatePort": _MODIFY,
        "BindPort": _MODIFY,
        "DeletePort": _MODIFY,
    },
    "ArtifactService": {
        "ListArtifacts": _READ,
        "GetArtifact": _READ,
        "CreateArtifact": _MODIFY,
        "UpdateArtifact": _MODIFY,
        "DeleteArtifact": _MODIFY,
        "ListTaskArtifacts": _READ,
        "MapArtifact": _MODIFY,
        "UnmapArtifact": _MODIFY,
    },
    "DatasetService": {
        "ListDatasets": _READ,
        "GetDataset": _READ,
        "CreateDataset": _MODIFY,
        "DeleteDataset": _MODIFY,
    },
    "EnvironmentService": {
        "ListEnvironments": _READ,
        "GetEnvironment": _READ,
        "RegisterEnvironment": _MODIFY,
        "DeleteEnvironment": _MODIFY,
        "BuildEnvironment": _MODIFY,
        "ExportEnvironment": _READ,
    },
    "MessageService": {
        "ListMessages": _READ,
        "CreateMessage": _OPERATE,
        "DeleteMessage": _OPERATE,
    },
    "WebhookService": {
        "ListWebhooks": _READ,
        "SetWebhook": _ACCOUNT,
        "DeleteWebhook": _ACCOUNT,
        "TestWebhook": _ACCOUNT,
    },
    "StorageService": {
        "ListMounts": _READ,
        "ListMountRules": replace(_READ_ALL, right=Right.MANAGE_STORAGE),
        "CreateMountRule": _STORAGE,
        "DeleteMountRule": _STORAGE,
    },
    "WorkspaceService": {
        "ListWorkspaces": _READ,
        "GetWorkspace": _READ,
        "CreateWorkspace": _MODIFY,
        "DeleteWorkspace": _MODIFY,
        "LeaseWorkspace": _LEASE,
        "GetTree": _READ,
        "PushTree": _MODIFY,
        "FetchFiles": _READ,
        "ListRevisions": _READ,
        "RestoreRevision": _MODIFY,
        "TagRevision": _MODIFY,
        "UntagRevision": _MODIFY,
        "ListTaskTrees": _READ,
        "DeleteTaskTree": _MODIFY,
        "WatchWorkspace": _READ,
    },
    "LogService": {"TailLogs": _READ},
    "WatchService": {"Watch": _READ},
    "UsageService": {
        "ListTaskUsage": _READ,
        "ListClusterUsage": _READ,
        "ListNodeUsage": _READ,
    },
    "AuditService": {"ListAuditRows": _READ_ALL},
    "ServerService": {"GetServerInfo": _OPEN},
    "TunnelService": {"OpenTunnel": _MODIFY},
    "ContainerService": {
        "GetContainer": _READ,
        "OpenContainer": _MODIFY,
        "ControlService": _MODIFY,
        "RenewContainer": _MODIFY,
        "DeleteContainer": _MODIFY,
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
    """Return the full names of our own services, in the order of the table."""
    return [f"hai.v1.{service}" for service in _TABLE]
