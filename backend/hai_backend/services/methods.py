"""What every call needs, and whether it changes anything: one row per RPC of every service that we answer.

A call without a row is refused; a test holds this table against the descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.user import Role, TokenScope


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
    mutates: bool = False  # audited, and finished even when the caller hangs up
    in_timeline: bool = False  # a success begins a task's timeline, which says who: no row of audit


_OPEN = Rule(Door.OPEN)
_AGENT = Rule(Door.RUN_TOKEN)
_LOOK = Rule()
_SUBMIT = Rule(scope=TokenScope.SUBMIT, mutates=True, in_timeline=True)
_TRY = Rule(scope=TokenScope.SUBMIT)
_STEER = Rule(scope=TokenScope.SUBMIT, mutates=True)
_ACCOUNT = Rule(scope=TokenScope.ALL, mutates=True)
_OPERATE = Rule(scope=TokenScope.ALL, role=Role.OPERATOR, mutates=True)
_LOOK_AT_ALL = Rule(role=Role.OPERATOR)
_ADMINISTER = Rule(scope=TokenScope.ALL, role=Role.ADMIN, mutates=True)

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
        "CordonNode": _OPERATE,
        "UncordonNode": _OPERATE,
        "DrainNode": _OPERATE,
        "ListGroups": _LOOK,
        "UpdateGroup": _OPERATE,
        "GetSnapshot": _LOOK_AT_ALL,
    },
    "UserService": {
        "WhoAmI": _LOOK,
        "ListUsers": _LOOK_AT_ALL,
        "CreateUser": _ADMINISTER,
        "UpdateUser": _ADMINISTER,
        "ListQuotas": _LOOK,
        "SetQuota": _ADMINISTER,
        "DeleteQuota": _ADMINISTER,
        "ListShares": _LOOK,
        "SetShare": _ADMINISTER,
        "DeleteShare": _ADMINISTER,
        "ListTokens": _LOOK,
        "CreateToken": _ACCOUNT,
        "RevokeToken": _ACCOUNT,
    },
    "LogService": {"TailLogs": _LOOK},
    "ServerService": {"GetServerInfo": _OPEN},
    "AgentService": {"Attach": _AGENT},
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
