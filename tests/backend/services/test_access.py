"""Every RPC × every kind of caller: who is let in. On a real server, with real tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.message import Message
from grpc import aio

import hai.v1
from hai.v1 import (
    agent_service_pb2,
    log_service_pb2,
    node_service_pb2,
    server_service_pb2,
    task_service_pb2,
    user_pb2,
    user_service_pb2,
)
from hai_backend.domain.user import Share, TokenScope
from hai_backend.services.methods import RULES, Door

MODULES = (
    agent_service_pb2,
    log_service_pb2,
    node_service_pb2,
    server_service_pb2,
    task_service_pb2,
    user_service_pb2,
)
SERVICES = [s for m in MODULES for s in m.DESCRIPTOR.services_by_name.values()]
METHODS = {f"/{s.full_name}/{m.name}": m for s in SERVICES for m in s.methods}

OK, NO = "OK", "PERMISSION_DENIED"
ACTORS = ("owner", "stranger", "operator", "admin", "reader", "submitter", "nobody")


def row(
    owner: str, stranger: str, operator: str, admin: str, reader: str, submitter: str
) -> dict[str, str]:
    codes = (owner, stranger, operator, admin, reader, submitter, "UNAUTHENTICATED")
    return dict(zip(ACTORS, codes, strict=True))


# The owner is ada, with tokens of scope ALL, READ (reader) and SUBMIT (submitter); what is asked for is hers.
SEE_TASK = row(OK, "NOT_FOUND", OK, OK, OK, OK)
STEER_TASK = row(OK, "NOT_FOUND", OK, OK, NO, OK)
LOOK = row(OK, OK, OK, OK, OK, OK)
SUBMIT = row(OK, OK, OK, OK, NO, OK)
OPERATE = row(NO, NO, OK, OK, NO, NO)
SEE_ALL = row(NO, NO, OK, OK, NO, NO)
ADMINISTER = row(NO, NO, NO, OK, NO, NO)
OWN_OR_ADMIN = row(OK, NO, NO, OK, OK, OK)
OPEN = dict.fromkeys(ACTORS, OK)

TABLE: Mapping[str, tuple[dict[str, Any], Mapping[str, str]]] = {
    "TaskService/CreateTask": ({}, SUBMIT),
    "TaskService/DryRunTask": ({}, SUBMIT),
    "TaskService/GetTask": ({"id": 1}, SEE_TASK),
    "TaskService/ListTasks": ({}, LOOK),
    "TaskService/ListRuns": ({"id": 1}, SEE_TASK),
    "TaskService/ListTaskEvents": ({"id": 1}, SEE_TASK),
    "TaskService/WatchTasks": ({}, LOOK),
    "TaskService/StopTask": ({"id": 1}, STEER_TASK),
    "TaskService/SuspendTask": ({"id": 1, "hold": True}, STEER_TASK),
    "TaskService/ResumeTask": ({"id": 1}, STEER_TASK),
    "TaskService/UpdateTaskPriority": ({"id": 1, "priority": 30}, STEER_TASK),
    "TaskService/MoveTask": ({"id": 1}, STEER_TASK),
    "TaskService/TagTask": ({"id": 1, "add": ["x"]}, STEER_TASK),
    "TaskService/StarTask": ({"id": 1, "starred": True}, STEER_TASK),
    "TaskService/ExplainTask": ({"id": 1}, SEE_TASK),
    "TaskService/ListQueue": ({}, LOOK),
    "NodeService/ListNodes": ({}, LOOK),
    "NodeService/GetNode": ({"name": "n0"}, LOOK),
    "NodeService/WatchNodes": ({}, LOOK),
    "NodeService/CordonNode": ({"name": "n0"}, OPERATE),
    "NodeService/UncordonNode": ({"name": "n0"}, OPERATE),
    "NodeService/DrainNode": ({"name": "n0"}, OPERATE),
    "NodeService/ListGroups": ({}, LOOK),
    "NodeService/UpdateGroup": ({"name": "default"}, OPERATE),
    "UserService/WhoAmI": ({}, LOOK),
    "UserService/ListUsers": ({}, SEE_ALL),
    "UserService/CreateUser": (
        {"user": {"name": "new", "role": "ROLE_USER", "active": True}},
        ADMINISTER,
    ),
    "UserService/UpdateUser": (
        {"user": {"name": "bob", "role": "ROLE_USER", "active": True}},
        ADMINISTER,
    ),
    "UserService/ListQuotas": ({"subject": "ada"}, row(OK, NO, OK, OK, OK, OK)),
    "NodeService/GetSnapshot": ({}, SEE_ALL),
    "UserService/SetQuota": (
        {"quota": {"subject": "ada", "group": "default", "nodes": 4}},
        ADMINISTER,
    ),
    "UserService/DeleteQuota": ({"subject": "eve", "group": "default"}, ADMINISTER),
    "UserService/ListShares": ({"user_group": "vision"}, row(OK, NO, OK, OK, OK, OK)),
    "UserService/SetShare": (
        {"share": {"user_group": "vision", "group": "default", "guaranteed": 2}},
        ADMINISTER,
    ),
    "UserService/DeleteShare": ({"user_group": "speech", "group": "default"}, ADMINISTER),
    "UserService/ListTokens": ({"user": "ada"}, OWN_OR_ADMIN),
    "UserService/CreateToken": (
        {"user": "ada", "scope": "TOKEN_SCOPE_READ"},
        row(OK, NO, NO, OK, NO, NO),
    ),
    "UserService/RevokeToken": ({"id": 1}, row(OK, "NOT_FOUND", "NOT_FOUND", OK, NO, NO)),
    "LogService/TailLogs": ({"id": 1}, SEE_TASK),
    "ServerService/GetServerInfo": ({}, OPEN),
}


def test_every_rpc_has_a_rule_and_no_rule_is_left_over() -> None:
    """A new RPC without a row would be refused to everybody."""
    ours = {method for method in RULES if method.startswith("/hai.v1.")}
    assert ours == set(METHODS)
    files = {p for package in hai.v1.__path__ for p in Path(package).glob("*_service.proto")}
    assert len(files) == len(MODULES)


def test_what_changes_something_needs_more_than_a_token_to_look() -> None:
    for method, rule in RULES.items():
        verb = method.rpartition("/")[2]
        looks = verb.startswith(
            (
                "Get",
                "List",
                "Watch",
                "Who",
                "Tail",
                "Explain",
                "DryRun",
                "Attach",
                "Check",
                "ServerRef",
            )
        )
        assert rule.mutates is not looks, method
        assert not rule.mutates or (
            rule.door is Door.TOKEN and rule.scope is not TokenScope.READ
        ), method


def test_every_rpc_stands_in_the_table_below() -> None:
    assert {f"/hai.v1.{name}" for name in TABLE} == set(METHODS) - {"/hai.v1.AgentService/Attach"}


@pytest.mark.parametrize("name", TABLE)
async def test_who_is_let_in(name: str, platform: Any, make_spec: Callable[..., Any]) -> None:
    fields, expected = TABLE[name]
    callers = await _callers(platform, make_spec)
    if name.endswith("DrainNode"):
        platform.cluster.suspend_on = _nothing_to_suspend
    found = {}
    for number, actor in enumerate(ACTORS):
        request = _request(name, fields)
        if name.endswith(("CreateTask", "DryRunTask")):
            request.spec.CopyFrom(make_spec(f"new {number}"))
        if name.endswith("DeleteQuota"):
            await _set_quota_of_eve(platform)
        if name.endswith("DeleteShare"):
            await platform.directory.set_share(Share("speech", "default"))
        platform.clock.advance(11)  # the priority of a task may change again
        found[actor] = await _code(callers[actor], name, request)
    assert found == expected


async def _callers(platform: Any, make_spec: Callable[..., Any]) -> dict[str, Any]:
    callers = {
        "owner": await platform.caller("ada"),
        "stranger": await platform.caller("eve"),
        "operator": await platform.caller("olga"),
        "admin": await platform.caller("root"),
        "reader": await platform.caller("ada", TokenScope.READ),
        "submitter": await platform.caller("ada", TokenScope.SUBMIT),
        "nobody": platform.with_token(None),
    }
    await platform.caller("ada")
    spec = make_spec("hers")
    await callers["owner"].tasks.CreateTask(task_service_pb2.CreateTaskRequest(spec=spec))
    return callers


def _request(name: str, fields: dict[str, Any]) -> Message:
    kind = message_factory.GetMessageClass(METHODS[f"/hai.v1.{name}"].input_type)
    request = json_format.ParseDict(fields, kind())
    if name == "UserService/RevokeToken":
        request.id = 7  # hers, and none that a caller here uses
    return request


async def _nothing_to_suspend(node: str, reason: str) -> None:
    return None


async def _set_quota_of_eve(platform: Any) -> None:
    root = await platform.caller("root")
    quota = user_pb2.Quota(subject="eve", group="default", nodes=1)
    await root.users.SetQuota(user_service_pb2.SetQuotaRequest(quota=quota))


async def _code(caller: Any, name: str, request: Message) -> str:
    service, method = name.split("/")
    stub = getattr(
        caller,
        {"ServerService": "server", "LogService": "logs"}.get(service, service[:4].lower() + "s"),
    )
    call = getattr(stub, method)(request)
    try:
        if METHODS[f"/hai.v1.{name}"].server_streaming:
            await call.read()
            call.cancel()
        else:
            await call
    except aio.AioRpcError as error:
        return str(error.code().name)
    return OK
