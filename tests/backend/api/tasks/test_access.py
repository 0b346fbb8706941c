"""Access to every RPC, by every kind of caller, for own and other resources, and the audit rows.

Callers and rows are checked against the descriptors, so that a new RPC without a row fails. On a real server, with real
tokens.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.message import Message
from grpc import aio

import hai.v1
from hai.client.connection.stream_call import StreamCall
from hai.v1 import image_service_pb2, task_service_pb2
from hai.v1.image_pb2 import Image
from hai_backend.api.audit.rows import UNKNOWN
from hai_backend.api.server.methods import RULES, Credential
from hai_backend.auth import tokens as token_rules
from hai_backend.domain.accounts.message import Message as Told
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import Quota, Share, TokenScope
from hai_backend.domain.accounts.webhook import Format, Webhook
from hai_backend.domain.catalog.artifact import Artifact
from hai_backend.domain.catalog.dataset import Dataset, Visibility
from hai_backend.domain.catalog.image import Registry
from hai_backend.domain.catalog.port import Port
from hai_backend.domain.mounts.mount import MountRow
from hai_backend.domain.priority import Priority
from hai_backend.lifecycle import events as ev
from hai_backend.store.base import AuditQuery
from hai_backend.workspaces import checkouts, tags
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import tree_scan
from tests.support.environments import make_environment

FILES = sorted(
    p.name.removesuffix(".proto")
    for package in hai.v1.__path__
    for p in Path(package).glob("*_service.proto")
)
MODULES = [importlib.import_module(f"hai.v1.{name}_pb2") for name in FILES]
SERVICES = [s for m in MODULES for s in m.DESCRIPTOR.services_by_name.values()]
METHODS = {f"{s.name}/{m.name}": m for s in SERVICES for m in s.methods}
LOOKING = (
    *("Get", "List", "Watch", "Who", "Tail", "Explain"),
    *("DryRun", "Attach", "Carry", "Check", "Fetch", "Export"),
)

NOT_NOW = "FAILED_PRECONDITION"
OK, NO, HIDDEN, NOBODY = "OK", "PERMISSION_DENIED", "NOT_FOUND", "UNAUTHENTICATED"
OBJECTS = ("own", "group", "other")
ACTORS = ("user", "submitter", "reader", "operator", "admin", "agent", "nobody")
"""user, submitter and reader are ada with tokens of scope ALL, SUBMIT and READ; agent has the run token of her task."""

Codes = tuple[str, str, str]  # for resources of the caller, of the caller's group, and of others
Expected = Mapping[str, Codes]


def codes(told: str | Codes) -> Codes:
    return told if isinstance(told, tuple) else (told, told, told)


def expect(
    user: str | Codes,
    *,
    submitter: str | Codes | None = None,
    reader: str | Codes | None = None,
    operator: str | Codes = OK,
    admin: str | Codes = OK,
    agent: str | Codes = NOBODY,
    nobody: str | Codes = NOBODY,
) -> Expected:
    """Return the expected codes by actor. Smaller scopes get the codes of the scope ALL by default."""
    told = (user, submitter or user, reader or user, operator, admin, agent, nobody)
    return {actor: codes(each) for actor, each in zip(ACTORS, told, strict=True)}


LOOK = expect(OK)
OPEN = expect(OK, agent=OK, nobody=OK)
SUBMIT = expect(OK, reader=NO)
SEE_TASK = expect((OK, OK, HIDDEN))
STEER_TASK = expect((OK, NO, HIDDEN), reader=NO)
SEE_GROUP = expect((OK, OK, NO))
SEE_ALL = expect(NO)
OPERATE = expect(NO)
ADMINISTER = expect(NO, operator=NO)
SEE_IMAGE = expect((OK, OK, HIDDEN))
CHANGE_SHARED = expect((OK, NO, HIDDEN), reader=NO)
ATTACH = expect(NOBODY, operator=NOBODY, admin=NOBODY, agent=(OK, NOBODY, NOBODY))


CARRY = expect(NOBODY, operator=NOBODY, admin=NOBODY, agent=(HIDDEN, NOBODY, NOBODY))
REACH_IN = expect((NOT_NOW, NO, HIDDEN), reader=NO, operator=NOT_NOW, admin=NOT_NOW)


@dataclass(frozen=True)
class Thing:
    """The resource of a call: it belongs to ada, to bob in the same user group, or to eve in another group."""

    kind: str
    user: str
    user_group: str
    subject: str  # a user, or the user group for `group`
    task: int
    token: int
    number: int = 0  # unique in each call


Before = Callable[[Any, Thing], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """One RPC: its request, the expected codes, and the preparation of each call."""

    request: Callable[[Thing], dict[str, Any]]
    expected: Expected
    before: Before | None = None


def a_task(thing: Thing) -> dict[str, Any]:
    return {"id": thing.task}


def nothing(thing: Thing) -> dict[str, Any]:
    return {}


def a_spec_of(thing: Thing) -> dict[str, Any]:
    name = f"new {thing.number}"
    return {"spec": {"version": 2, "name": name, "spec": {"entrypoint": "train.py"}}}


def a_node(thing: Thing) -> dict[str, Any]:
    return {"name": "n0"}


def a_hello(thing: Thing) -> dict[str, Any]:
    return {"hello": {"task_id": thing.task, "run": 1, "rank": 0}}


def a_carrying(thing: Thing) -> dict[str, Any]:
    return {"hello": {"task_id": thing.task, "run": 1, "rank": 0, "tunnel": "of somebody else"}}


def an_opening(thing: Thing) -> dict[str, Any]:
    return {"open": {"task_id": thing.task, "target": {"port": 22}}}


def with_task(**fields: Any) -> Callable[[Thing], dict[str, Any]]:
    return lambda thing: {"id": thing.task, **fields}


async def a_quota(platform: Any, thing: Thing) -> None:
    await platform.directory.set_quota(Quota(thing.user, False, "default", Priority.LOW, 3))


async def a_share(platform: Any, thing: Thing) -> None:
    await platform.directory.set_share(Share(thing.user_group, "default"))


async def a_grant(platform: Any, thing: Thing) -> None:
    await platform.directory.grant(Grant(thing.user, False, "assign_nodes"))


async def an_image(platform: Any, thing: Thing) -> None:
    """Create an image for the user group of the resource."""
    platform.registries.digests[f"r.example/{thing.user}/i:latest"] = "sha256:" + "0" * 64
    root, reference = await platform.caller("root"), f"r.example/{thing.user}/i"
    image = Image(name=thing.kind, reference=reference, user_groups=[thing.user_group])
    await root.images.SetImage(image_service_pb2.SetImageRequest(image=image))


async def a_right_to_ports(platform: Any, thing: Thing) -> None:
    await platform.directory.grant(Grant("ada", False, "ports:1000"))


async def a_port(platform: Any, thing: Thing) -> None:
    await platform.store.save_record(Port(thing.task, thing.user, "t", "ssh"))


def which_artifact(thing: Thing, *, owner: bool = True) -> dict[str, Any]:
    """Return an artifact reference. It is private, except that bob's belongs to his user group."""
    group = thing.user_group if thing.kind == "group" else ""
    return {"name": "a", "user_group": group, **({"owner": thing.user} if owner else {})}


async def an_artifact(platform: Any, thing: Thing) -> None:
    space = thing.user_group if thing.kind == "group" else f"~{thing.user}"
    await platform.store.save_record(Artifact(space, "a", "default", thing.user))


async def a_dataset(platform: Any, thing: Thing) -> None:
    """Create one. It is private, except that bob's is visible to his user group."""
    seen = Visibility.GROUP if thing.kind == "group" else Visibility.PRIVATE
    await platform.store.save_record(
        Dataset(thing.kind, "default", "/data", thing.user, thing.user_group, seen)
    )


def which_environment(thing: Thing) -> dict[str, Any]:
    return {"name": "e", "owner": thing.user}


async def an_environment(platform: Any, thing: Thing) -> None:
    """Create one. It is private, except that bob's is visible to his user group."""
    visibility = "group" if thing.kind == "group" else "private"
    make_environment(
        platform.environments.root, thing.user, "e", visibility=visibility, group=thing.user_group
    )


async def an_environment_of_everybody(platform: Any, thing: Thing) -> None:
    for user in ("ada", "olga", "root"):
        make_environment(platform.environments.root, user, "e")


async def a_message(platform: Any, thing: Thing) -> None:
    await platform.store.save_record(Told(thing.task, thing.user, False, "hello", "olga", 1.0))


async def a_webhook(platform: Any, thing: Thing) -> None:
    url = "https://hooks.example.org/x"
    hook = Webhook(thing.user, thing.kind, url, ("ended",), Format.JSON, "", "whsec_AAAA", 1.0)
    await platform.webhook_deps.webhooks.save(hook)


async def a_mount_rule(platform: Any, thing: Thing) -> None:
    await platform.store.save_record(MountRow((thing.user,), "/m", "/srv/data", id=thing.task))


async def a_registry(platform: Any, thing: Thing) -> None:
    await platform.store.save_record(Registry(f"r.example/{thing.kind}"))


async def a_workspace(platform: Any, thing: Thing) -> None:
    """Create workspaces with one revision that is tagged x, and the directory of task 7."""
    for user in {thing.user, "ada", "olga", "root"}:
        await platform.workspaces.registry.create((user, "w"), 1.0, "the same")
        async with platform.workspaces.registry.open((user, "w")) as room:
            (room.files.tree / "directory").mkdir(exist_ok=True)
            tree_scan.scan_tree(room.files, Author("tasks", 1.0))
            tags.tag(room.files, "x", 1, force=False)
            checkouts.create(room.files, 7, 1, 0)


def which_workspace(thing: Thing) -> dict[str, Any]:
    return {"name": "w", "user": thing.user}


TASKS = {
    "CreateTask": Row(a_spec_of, SUBMIT),
    "DryRunTask": Row(a_spec_of, SUBMIT),
    "GetTask": Row(a_task, SEE_TASK),
    "ListTasks": Row(nothing, LOOK),
    "ListRuns": Row(a_task, SEE_TASK),
    "ListTaskEvents": Row(a_task, SEE_TASK),
    "WatchTasks": Row(nothing, LOOK),
    "StopTask": Row(a_task, STEER_TASK),
    "SuspendTask": Row(with_task(hold=True), STEER_TASK),
    "ResumeTask": Row(a_task, STEER_TASK),
    "UpdateTaskPriority": Row(with_task(priority=30), STEER_TASK),
    "MoveTask": Row(a_task, STEER_TASK),
    "TagTask": Row(with_task(add=["x"]), STEER_TASK),
    "StarTask": Row(with_task(starred=True), STEER_TASK),
    "ExplainTask": Row(a_task, SEE_TASK),
    "ListQueue": Row(nothing, LOOK),
}
NODES = {
    "ListNodes": Row(nothing, LOOK),
    "GetNode": Row(a_node, LOOK),
    "WatchNodes": Row(nothing, LOOK),
    "CordonNode": Row(a_node, OPERATE),
    "UncordonNode": Row(a_node, OPERATE),
    "DrainNode": Row(a_node, OPERATE),
    "LabelNode": Row(lambda thing: {"name": "n0", "labels": {"rack": "r7"}}, OPERATE),
    "ListGroups": Row(nothing, LOOK),
    "UpdateGroup": Row(lambda thing: {"name": "default"}, OPERATE),
    "GetSnapshot": Row(nothing, SEE_ALL),
}
USERS = {
    "WhoAmI": Row(nothing, LOOK),
    "ListUsers": Row(nothing, SEE_ALL),
    "CreateUser": Row(
        lambda t: {"user": {"name": f"new{t.number}", "role": "ROLE_USER", "active": True}},
        ADMINISTER,
    ),
    "UpdateUser": Row(
        lambda t: {
            "user": {
                "name": t.user,
                "role": "ROLE_USER",
                "active": True,
                "groups": [t.user_group],
            }
        },
        ADMINISTER,
    ),
    "ListQuotas": Row(lambda t: {"subject": t.subject}, SEE_GROUP),
    "SetQuota": Row(
        lambda t: {"quota": {"subject": t.user, "group": "default", "nodes": 4}}, ADMINISTER
    ),
    "DeleteQuota": Row(lambda t: {"subject": t.user, "group": "default"}, ADMINISTER, a_quota),
    "ListShares": Row(lambda t: {"user_group": t.user_group}, SEE_GROUP),
    "SetShare": Row(
        lambda t: {"share": {"user_group": t.user_group, "group": "default", "weight": 2}},
        ADMINISTER,
    ),
    "DeleteShare": Row(
        lambda t: {"user_group": t.user_group, "group": "default"}, ADMINISTER, a_share
    ),
    "ListRights": Row(lambda t: {"subject": t.subject}, SEE_GROUP),
    "GrantRight": Row(
        lambda t: {"grant": {"subject": t.user, "right": "manage_tasks"}},
        ADMINISTER,
    ),
    "RevokeRight": Row(lambda t: {"subject": t.user, "right": "assign_nodes"}, ADMINISTER, a_grant),
    "ListTokens": Row(lambda t: {"user": t.user}, expect((OK, NO, NO), operator=NO)),
    "CreateToken": Row(
        lambda t: {"user": t.user, "scope": "TOKEN_SCOPE_READ"},
        expect((OK, NO, NO), submitter=NO, reader=NO, operator=NO),
    ),
    "RevokeToken": Row(
        lambda t: {"id": t.token},
        expect((OK, HIDDEN, HIDDEN), submitter=NO, reader=NO, operator=HIDDEN),
    ),
}
IMAGES = {
    "ListImages": Row(nothing, LOOK),
    "SetImage": Row(
        lambda t: {"image": {"name": t.kind, "reference": "r.example/p/i"}}, ADMINISTER
    ),
    "DeleteImage": Row(lambda t: {"name": t.kind}, ADMINISTER, an_image),
    "ListImageTags": Row(lambda t: {"image": t.kind}, SEE_IMAGE, an_image),
    "CheckImage": Row(lambda t: {"image": t.kind}, SEE_IMAGE, an_image),
    "ListRegistries": Row(nothing, ADMINISTER),
    "SetRegistry": Row(lambda t: {"registry": {"prefix": f"r.example/{t.kind}"}}, ADMINISTER),
    "DeleteRegistry": Row(lambda t: {"prefix": f"r.example/{t.kind}"}, ADMINISTER, a_registry),
}
PORTS = {
    "ListPorts": Row(lambda t: {"user": t.user}, expect((OK, NO, NO))),
    "CreatePort": Row(
        lambda t: {"port": {"user": t.user, "task_name": f"t{t.number}", "service": "ssh"}},
        expect((OK, NO, NO), reader=NO),
        a_right_to_ports,
    ),
    "BindPort": Row(
        lambda t: {"node_port": t.task, "task_name": f"t{t.number}", "service": "ssh"},
        expect((OK, HIDDEN, HIDDEN), reader=NO),
        a_port,
    ),
    "DeletePort": Row(
        lambda t: {"node_port": t.task}, expect((OK, HIDDEN, HIDDEN), reader=NO), a_port
    ),
}
ARTIFACTS = {
    "ListArtifacts": Row(nothing, LOOK),
    "GetArtifact": Row(which_artifact, expect((OK, OK, HIDDEN)), an_artifact),
    "CreateArtifact": Row(
        lambda t: {"artifact": {"name": f"new{t.number}", "user_group": t.user_group}},
        expect((OK, OK, NO), reader=NO),
    ),
    "UpdateArtifact": Row(lambda t: {"artifact": which_artifact(t)}, CHANGE_SHARED, an_artifact),
    "DeleteArtifact": Row(which_artifact, CHANGE_SHARED, an_artifact),
    "ListTaskArtifacts": Row(lambda t: {"task_id": t.task}, SEE_TASK),
    "MapArtifact": Row(
        lambda t: {"task_id": t.task, "direction": 1, **which_artifact(t, owner=False)},
        STEER_TASK,
        an_artifact,
    ),
    "UnmapArtifact": Row(lambda t: {"task_id": t.task}, STEER_TASK),
}
DATASETS = {
    "ListDatasets": Row(nothing, LOOK),
    "GetDataset": Row(lambda t: {"name": t.kind}, expect((OK, OK, HIDDEN)), a_dataset),
    "CreateDataset": Row(
        lambda t: {
            "dataset": {
                "name": f"new{t.number}",
                "path": "/data",
                "user_group": t.user_group,
                "visibility": "DATASET_VISIBILITY_GROUP",
            }
        },
        expect((OK, OK, NO), reader=NO),
    ),
    "DeleteDataset": Row(lambda t: {"name": t.kind}, CHANGE_SHARED, a_dataset),
}
ENVIRONMENTS = {
    "ListEnvironments": Row(nothing, LOOK),
    "GetEnvironment": Row(which_environment, expect((OK, OK, HIDDEN)), an_environment),
    "RegisterEnvironment": Row(
        lambda t: {"environment": {"name": "e"}},
        expect(OK, reader=NO),
        an_environment_of_everybody,
    ),
    "DeleteEnvironment": Row(
        which_environment, expect((OK, NO, HIDDEN), reader=NO, operator=NO), an_environment
    ),
    "BuildEnvironment": Row(
        lambda t: {"description": {"name": f"new{t.number}", "python_version": "3.11"}},
        expect(OK, reader=NO),
    ),
    "ExportEnvironment": Row(which_environment, expect((OK, OK, HIDDEN)), an_environment),
}

CONTAINERS = {
    "GetContainer": Row(a_task, SEE_TASK),
    "OpenContainer": Row(  # this server has no proxy
        a_task, expect((NOT_NOW, NOT_NOW, HIDDEN), reader=NO, operator=NOT_NOW, admin=NOT_NOW)
    ),
    "ControlService": Row(with_task(service="jupyter", action=1), REACH_IN),
    "RenewContainer": Row(a_task, REACH_IN),
    "DeleteContainer": Row(a_task, REACH_IN),
}
MESSAGES = {
    "ListMessages": Row(nothing, LOOK),
    "CreateMessage": Row(lambda t: {"message": {"subject": t.user, "text": "hello"}}, OPERATE),
    "DeleteMessage": Row(lambda t: {"id": t.task}, OPERATE, a_message),
}
OWN_ACCOUNT = expect((OK, HIDDEN, HIDDEN), submitter=NO, reader=NO, operator=HIDDEN, admin=HIDDEN)
WEBHOOKS = {
    "ListWebhooks": Row(nothing, LOOK),
    "SetWebhook": Row(
        lambda t: {"webhook": {"name": t.kind, "url": "https://hooks.example.org/x"}},
        expect(OK, submitter=NO, reader=NO),
    ),
    "DeleteWebhook": Row(lambda t: {"name": t.kind}, OWN_ACCOUNT, a_webhook),
    "TestWebhook": Row(lambda t: {"name": t.kind}, OWN_ACCOUNT, a_webhook),
}
STORAGE = {
    "ListMounts": Row(lambda t: {"user": t.user}, expect((OK, NO, NO))),
    "ListMountRules": Row(nothing, SEE_ALL),
    "CreateMountRule": Row(
        lambda t: {
            "rule": {"owners": [t.user], "mount_path": f"/m{t.number}", "source": "/srv/data"}
        },
        OPERATE,
    ),
    "DeleteMountRule": Row(lambda t: {"id": t.task}, OPERATE, a_mount_rule),
}
SEE_WORKSPACE = expect((OK, HIDDEN, HIDDEN))
OWN_WORKSPACE = expect(OK, reader=NO)
WORKSPACES = {
    "ListWorkspaces": Row(lambda t: {"user": t.user}, SEE_WORKSPACE),
    "GetWorkspace": Row(which_workspace, SEE_WORKSPACE, a_workspace),
    "CreateWorkspace": Row(lambda t: {"workspace": {"name": f"new{t.number}"}}, OWN_WORKSPACE),
    "DeleteWorkspace": Row(which_workspace, expect((OK, HIDDEN, HIDDEN), reader=NO), a_workspace),
    "LeaseWorkspace": Row(lambda t: {"name": "w", "force": True}, OWN_WORKSPACE, a_workspace),
    "GetTree": Row(which_workspace, SEE_WORKSPACE, a_workspace),
    "PushTree": Row(  # without a lease
        lambda t: {"begin": {"name": "w"}},
        expect(NOT_NOW, reader=NO, operator=NOT_NOW, admin=NOT_NOW),
        a_workspace,
    ),
    "FetchFiles": Row(lambda t: which_workspace(t) | {"revision": 1}, SEE_WORKSPACE, a_workspace),
    "ListRevisions": Row(which_workspace, SEE_WORKSPACE, a_workspace),
    "RestoreRevision": Row(lambda t: {"name": "w", "revision": 1}, OWN_WORKSPACE, a_workspace),
    "TagRevision": Row(
        lambda t: {"name": "w", "revision": 1, "tag": "x"}, OWN_WORKSPACE, a_workspace
    ),
    "UntagRevision": Row(lambda t: {"name": "w", "tag": "x"}, OWN_WORKSPACE, a_workspace),
    "ListTaskTrees": Row(which_workspace, SEE_WORKSPACE, a_workspace),
    "DeleteTaskTree": Row(lambda t: {"name": "w", "task": 7}, OWN_WORKSPACE, a_workspace),
    "WatchWorkspace": Row(which_workspace, SEE_WORKSPACE, a_workspace),
}
TABLE: Mapping[str, Row] = {
    f"{service}/{method}": row
    for service, rows in {
        "TaskService": TASKS,
        "NodeService": NODES,
        "UserService": USERS,
        "ImageService": IMAGES,
        "PortService": PORTS,
        "ArtifactService": ARTIFACTS,
        "DatasetService": DATASETS,
        "EnvironmentService": ENVIRONMENTS,
        "MessageService": MESSAGES,
        "WebhookService": WEBHOOKS,
        "StorageService": STORAGE,
        "WorkspaceService": WORKSPACES,
        "LogService": {"TailLogs": Row(a_task, SEE_TASK)},
        "UsageService": {
            "ListTaskUsage": Row(lambda t: {"task_id": t.task}, SEE_TASK),
            "ListClusterUsage": Row(nothing, LOOK),
            "ListNodeUsage": Row(nothing, LOOK),
        },
        "AuditService": {"ListAuditRows": Row(nothing, SEE_ALL)},
        "ServerService": {"GetServerInfo": Row(nothing, OPEN)},
        "WatchService": {"Watch": Row(lambda t: {"tasks": {}, "nodes": {}}, LOOK)},
        "TunnelService": {"OpenTunnel": Row(an_opening, REACH_IN)},
        "ContainerService": CONTAINERS,
        "AgentService": {"Attach": Row(a_hello, ATTACH), "Carry": Row(a_carrying, CARRY)},
    }.items()
    for method, row in rows.items()
}


def test_every_rpc_has_a_rule_and_no_rule_is_left_over() -> None:
    """A new RPC without a rule would be refused for everybody."""
    ours = {method for method in RULES if method.startswith("/hai.v1.")}
    assert ours == {f"/hai.v1.{name}" for name in METHODS}


def test_every_rpc_is_in_the_test_table() -> None:
    assert set(TABLE) == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_mutating_calls_need_more_than_the_scope_read(name: str) -> None:
    rule = RULES[f"/hai.v1.{name}"]
    assert rule.mutates is not name.partition("/")[2].startswith(LOOKING)
    assert not rule.mutates or (
        rule.credential is Credential.USER_TOKEN and rule.scope is not TokenScope.READ
    )


@pytest.mark.parametrize("name", METHODS)
async def test_callers_are_admitted_by_role_and_scope(name: str, platform: Any) -> None:
    row, world = TABLE[name], await _world(platform)
    platform.cluster.suspend_on = _nothing_to_suspend
    found: dict[str, list[str]] = {actor: [] for actor in ACTORS}
    rows: dict[str, list[int]] = {actor: [] for actor in ACTORS}
    for actor, thing in ((actor, thing) for actor in ACTORS for thing in world.things()):
        if row.before is not None:
            await row.before(platform, thing)
        platform.clock.advance(11)  # after the rate limit of priority changes
        before = await _audited(platform)
        found[actor].append(await _code(world, name, actor, row.request(thing)))
        rows[actor].append(await _audited(platform) - before)
    assert {actor: tuple(told) for actor, told in found.items()} == row.expected
    assert rows == _expected_rows(name, row.expected)


async def _audited(platform: Any) -> int:
    """Return the rows of identified callers. Calls without a valid token share a row that is written later."""
    rows = (await platform.store.audit(AuditQuery(page_size=10_000))).rows
    return sum(row.actor != UNKNOWN for row in rows)


def _expected_rows(name: str, expected: Expected) -> dict[str, list[int]]:
    """Return one row for each change, also for a refused one. Reads and unknown callers have none."""
    rule = RULES[f"/hai.v1.{name}"]
    told_elsewhere = {NOBODY, OK} if rule.in_timeline else {NOBODY}
    return {
        actor: [int(rule.mutates and code not in told_elsewhere) for code in told]
        for actor, told in expected.items()
    }


@dataclass
class World:
    """A server with resources of three users, and a token for each caller."""

    platform: Any
    channel: aio.Channel
    kinds: tuple[Thing, ...]
    tokens: Mapping[str, str | None]
    numbers: Iterator[int]

    def things(self) -> Iterator[Thing]:
        for thing in self.kinds:
            yield replace(thing, number=next(self.numbers))


async def _world(platform: Any) -> World:
    owners = {"own": ("ada", "vision"), "group": ("bob", "vision"), "other": ("eve", "speech")}
    things = [await _thing(platform, kind, user, group) for kind, (user, group) in owners.items()]
    await platform.task_manager.apply(
        things[0].task, ev.RunPlaced(("n0",), Priority.NORMAL, "fits")
    )
    tokens = {
        "user": await platform.token("ada"),
        "submitter": await platform.token("ada", TokenScope.SUBMIT),
        "reader": await platform.token("ada", TokenScope.READ),
        "operator": await platform.token("olga"),
        "admin": await platform.token("root"),
        "agent": token_rules.run_token(platform.secret, things[0].task, 1, 0),
        "nobody": None,
    }
    channel = platform.with_token(None).channel
    return World(platform, channel, tuple(things), tokens, itertools.count())


async def _thing(platform: Any, kind: str, user: str, group: str) -> Thing:
    owner = await platform.caller(user)
    created = task_service_pb2.CreateTaskRequest()
    created.spec.version, created.spec.name = 2, f"{kind} task"
    created.spec.spec.entrypoint = "train.py"
    created.spec.options.shared_in_group = True
    created.spec.services.add(name="jupyter")
    task = await owner.tasks.CreateTask(created)
    spare = (await platform.directory.create_token(user, TokenScope.READ, 1.0))[0]
    subject = group if kind == "group" else user
    return Thing(kind, user, group, subject, task.id, spare.id)


async def _nothing_to_suspend(node: str, reason: str) -> None:
    return None


async def _code(world: World, name: str, actor: str, fields: dict[str, Any]) -> str:
    """Return the code of the call. A stream is read up to its first response."""
    method, token = METHODS[name], world.tokens[actor]
    request = json_format.ParseDict(fields, message_factory.GetMessageClass(method.input_type)())
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    try:
        await _called(world.channel, name, request, metadata)
    except aio.AioRpcError as error:
        return str(error.code().name)
    return OK


async def _called(channel: aio.Channel, name: str, request: Message, metadata: Any) -> None:
    method = METHODS[name]
    kinds = ("unary", "stream")
    kind = f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}"
    answer = message_factory.GetMessageClass(method.output_type)
    encode, decode = type(request).SerializeToString, answer.FromString
    stub = getattr(channel, kind)(f"/hai.v1.{name}", encode, decode)
    given = iter([request]) if method.client_streaming else request
    call = stub(given, metadata=metadata, timeout=20)
    if not method.server_streaming:
        await call
        return
    stream: StreamCall[Any, Any] = StreamCall(call)
    await stream.read()
    if RULES[f"/hai.v1.{name}"].mutates:  # the audit row is written at the end
        while await stream.read() is not None:
            pass
    stream.cancel()
