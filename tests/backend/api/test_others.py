"""NodeService, UserService and LogService."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest

from hai.v1 import log_service_pb2, node_pb2, user_pb2
from hai.v1 import node_service_pb2 as npb
from hai.v1 import user_service_pb2 as upb
from hai.v1.watch_service_pb2 import WatchRequest
from hai_backend.api.nodes.tenants import NodeTenants
from hai_backend.api.watch import cache as watching
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import AfterSpec
from hai_backend.lifecycle import events as ev
from hai_backend.logs.lines import stamp
from tests.support.builders import a_spec

C = grpc.StatusCode


@dataclass(frozen=True)
class Key:
    task_id: int
    run: int
    rank: int


async def running(platform: Any, user: str, *nodes: str) -> None:
    task = await platform.task_manager.submit(user, a_spec(f"of {user}", len(nodes)), "")
    await platform.task_manager.apply(task.id, ev.RunPlaced(nodes, Priority.NORMAL, "fits"))


async def test_names_of_tenants_are_shown_only_to_permitted_callers(platform: Any) -> None:
    await running(platform, "bob", "n0", "n1")
    ada, olga = await platform.caller("ada"), await platform.caller("olga")
    for caller, name in ((ada, ""), (olga, "of bob")):
        node = await caller.nodes.GetNode(npb.GetNodeRequest(name="n1"))
        tenants = [(t.task_id, t.task_name, t.user, t.run, t.rank) for t in node.tenants]
        assert tenants == [(1, name, "bob", 1, 1)]


async def test_streams_that_share_encoded_nodes_show_names_only_to_permitted_callers(
    platform: Any,
) -> None:
    await running(platform, "bob", "n0")
    for user, name in (("olga", "of bob"), ("ada", ""), ("bob", "of bob"), ("ada", "")):
        caller = await platform.caller(user)
        watch = caller.nodes.WatchNodes(npb.WatchNodesRequest())
        (tenant,) = (await watch.read()).nodes[0].tenants
        assert (tenant.task_name, tenant.user) == (name, "bob")
        watch.cancel()


async def test_watch_reports_changes_of_nodes_and_tenants_and_resumes(platform: Any) -> None:
    ada, olga = await platform.caller("ada"), await platform.caller("olga")
    watch = ada.nodes.WatchNodes(npb.WatchNodesRequest())
    first = await watch.read()
    assert [n.name for n in first.nodes] == ["n0", "n1", "n2", "n3"]
    await olga.nodes.CordonNode(npb.CordonNodeRequest(name="n2", reason="fan"))
    second = await watch.read()
    assert [(n.name, n.cordoned, n.reason) for n in second.nodes] == [("n2", True, "fan (olga)")]
    watch.cancel()
    await running(platform, "ada", "n0")
    again = ada.nodes.WatchNodes(npb.WatchNodesRequest(after_version=second.version))
    third = await again.read()
    assert [(n.name, len(n.tenants)) for n in third.nodes] == [("n0", 1)]
    assert first.version < second.version < third.version
    again.cancel()


@pytest.mark.parametrize("cordoned_in_hai", [False, True])
async def test_uncordon_is_refused_for_a_node_that_kubectl_cordoned(
    platform: Any, cordoned_in_hai: bool
) -> None:
    olga = await platform.caller("olga")
    nodes = platform.cluster.nodes().values()
    held = {"held": "cordoned in Kubernetes", "lift": "kubectl uncordon n2"}
    await platform.cluster.update_nodes(
        [replace(n, **held) if n.name == "n2" else n for n in nodes]
    )
    if cordoned_in_hai:
        await olga.nodes.CordonNode(npb.CordonNodeRequest(name="n2", reason="fan"))
        both = await olga.nodes.GetNode(npb.GetNodeRequest(name="n2"))
        assert both.reason == "fan (olga); cordoned in Kubernetes (kubectl uncordon n2)"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await olga.nodes.UncordonNode(npb.UncordonNodeRequest(name="n2"))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    what = (
        "node n2 is no longer cordoned in HAI, but still takes no new work"
        if cordoned_in_hai
        else "node n2 takes no new work, and HAI has not cordoned it"
    )
    assert (
        refused.value.details()
        == f"{what}: cordoned in Kubernetes. Lift it with: kubectl uncordon n2"
    )
    assert not platform.cluster.nodes()["n2"].cordoned


async def test_many_nodes_are_sent_in_small_parts(platform: Any) -> None:
    names = [f"n{i}" for i in range(3000)]
    await platform.cluster.update_nodes([Node(name, gpus=8) for name in names])
    ada = await platform.caller("ada")
    watch = ada.nodes.WatchNodes(npb.WatchNodesRequest())
    parts = [await watch.read()]
    while not parts[-1].version:  # a stream that ends earlier must restart
        parts.append(await watch.read())
    watch.cancel()
    assert [n.name for part in parts for n in part.nodes] == sorted(names)
    assert max(part.ByteSize() for part in parts) <= 70_000


async def test_changes_of_tasks_do_not_refresh_nodes_each_time(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = 0

    class Counted(NodeTenants):
        def _compute(self) -> None:
            nonlocal counts
            counts += 1
            super()._compute()

    monkeypatch.setattr(watching, "BUNDLE_SECONDS", 60.0)
    board = Counted(platform.cluster, platform.task_manager, platform.clock)
    board.refresh()
    with board.stream(), board.stream():
        for number in range(20):
            await platform.task_manager.submit("ada", a_spec(f"t{number}"), "")
            await asyncio.sleep(0)
        assert counts == 1


async def test_watch_of_nothing_is_refused(platform: Any) -> None:
    ada = await platform.caller("ada")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ada.watches.Watch(WatchRequest()).read()
    assert refused.value.code() is C.INVALID_ARGUMENT


async def test_groups_and_their_numbers(platform: Any) -> None:
    olga = await platform.caller("olga")
    packed = npb.UpdateGroupRequest(name="default", packed=True)
    await olga.nodes.UpdateGroup(packed)
    await running(platform, "ada", "n0")
    first = await platform.task_manager.submit("ada", a_spec("waits"), "")
    await platform.task_manager.submit("ada", a_spec("next", after=(AfterSpec(first.id),)), "")
    await olga.nodes.CordonNode(npb.CordonNodeRequest(name="n1"))
    changed = await olga.nodes.UpdateGroup(packed)  # no change
    expected = node_pb2.Group(
        name="default", packed=True, nodes=4, usable_nodes=3, free_nodes=2, waiting_tasks=1
    )
    listed = (await olga.nodes.ListGroups(npb.ListGroupsRequest())).groups
    assert list(listed) == [changed]
    for field in ("policy", "policy_in_force"):  # backend/api/nodes/test_groups.py
        changed.ClearField(field)
    assert changed == expected


async def test_group_in_use_cannot_be_repacked(platform: Any, expect_refusal: Any) -> None:
    olga = await platform.caller("olga")
    await running(platform, "ada", "n0")
    async with expect_refusal() as why:
        await olga.nodes.UpdateGroup(npb.UpdateGroupRequest(name="default", packed=True))
    assert (why[0].code, why[0].reason) == (C.FAILED_PRECONDITION, "GROUP_IN_USE")
    assert "(1)" in why[0].message
    assert not platform.cluster.groups()["default"].packed
    await olga.nodes.UpdateGroup(
        npb.UpdateGroupRequest(name="other", packed=True)
    )  # the group has no tasks
    await platform.task_manager.apply(1, ev.LaunchFailed(1, 0, "no room", unschedulable=True))
    await olga.nodes.UpdateGroup(npb.UpdateGroupRequest(name="default", packed=True))


async def test_group_is_not_repacked_while_runs_are_being_placed(
    platform: Any, expect_refusal: Any
) -> None:
    olga = await platform.caller("olga")
    await (
        platform.cluster.placement_lock.acquire()
    )  # the scheduling loop holds it while it places runs
    request = npb.UpdateGroupRequest(name="default", packed=True)
    asked = asyncio.ensure_future(olga.nodes.UpdateGroup(request))
    await olga.nodes.ListGroups(npb.ListGroupsRequest())
    await running(platform, "ada", "n0")
    platform.cluster.placement_lock.release()
    async with expect_refusal() as why:
        await asked
    assert why[0].reason == "GROUP_IN_USE"


async def test_new_node_makes_room_for_submissions(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    from hai.v1 import task_service_pb2 as pb

    ada = await platform.caller("ada")
    request = pb.CreateTaskRequest(spec=make_spec("big", node_count=5))
    async with expect_refusal() as why:
        await ada.tasks.CreateTask(request)
    assert why[0].reason == "GROUP_TOO_SMALL"
    await platform.cluster.update_nodes([Node(f"n{i}", gpus=8) for i in range(5)])
    await ada.tasks.CreateTask(request)


async def test_quotas_with_their_use(platform: Any) -> None:
    root, ada = await platform.caller("root"), await platform.caller("ada")
    for subject, is_group, nodes in (("ada", False, 2), ("vision", True, 8), ("speech", True, 9)):
        quota = user_pb2.Quota(
            subject=subject, subject_is_group=is_group, group="default", priority=10, nodes=nodes
        )
        await root.users.SetQuota(upb.SetQuotaRequest(quota=quota))
    await running(platform, "ada", "n0")
    me = await ada.users.WhoAmI(upb.WhoAmIRequest())
    assert [(q.subject, q.nodes, q.used) for q in me.quotas] == [("ada", 2, 1)]
    seen = (await ada.users.ListQuotas(upb.ListQuotasRequest())).quotas
    assert [q.subject for q in seen] == ["ada", "vision"]
    assert len((await root.users.ListQuotas(upb.ListQuotasRequest())).quotas) == 3


@pytest.mark.parametrize(
    ("user", "fields"),
    [
        pytest.param(user_pb2.User(name="A b"), {"user.name", "user.role"}, id="name and role"),
        pytest.param(user_pb2.User(name="", role=1), {"user.name"}, id="no name"),
        pytest.param(
            user_pb2.User(name="x" * 33, role=1, uid=-1),
            {"user.name", "user.uid"},
            id="long name, uid",
        ),
        pytest.param(
            user_pb2.User(name="x", role=1, groups=["ok", "a b"]), {"user.groups[1]"}, id="group"
        ),
        pytest.param(
            user_pb2.User(name="x", role=1, groups=["a b"] * 1001, rights=["no"] * 1001),
            {"user.groups", "user.rights"},
            id="too many",
        ),
    ],
)
async def test_users_are_validated(
    platform: Any, expect_refusal: Any, user: user_pb2.User, fields: set[str]
) -> None:
    root = await platform.caller("root")
    async with expect_refusal() as why:
        await root.users.CreateUser(upb.CreateUserRequest(user=user))
    assert {field for field, _ in why[0].violations} == fields


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        pytest.param(-(10**12), "in the past", id="past"),
        pytest.param(2**62, "year 9999", id="beyond every calendar"),
    ],
)
async def test_expiry_of_a_token_must_be_representable(
    platform: Any, expect_refusal: Any, seconds: int, message: str
) -> None:
    ada, request = await platform.caller("ada"), upb.CreateTokenRequest(scope=2)
    request.expire_time.seconds = seconds
    async with expect_refusal() as why:
        await ada.users.CreateToken(request)
    assert [field for field, _ in why[0].violations] == ["expire_time"]
    assert message in why[0].violations[0][1]


async def test_secret_of_a_token_is_returned_once(platform: Any) -> None:
    ada = await platform.caller("ada")
    token = await ada.users.CreateToken(upb.CreateTokenRequest(scope=1, description="laptop"))
    await platform.with_token(token.secret).users.WhoAmI(upb.WhoAmIRequest())
    listed = (await ada.users.ListTokens(upb.ListTokensRequest())).tokens
    assert [(t.description, t.secret) for t in listed] == [("laptop", ""), ("", "")]


async def test_tokens_of_an_unknown_user_are_not_found(platform: Any, expect_refusal: Any) -> None:
    root = await platform.caller("root")
    async with expect_refusal() as why:
        await root.users.ListTokens(upb.ListTokensRequest(user="nobody"))
    assert why[0].code == grpc.StatusCode.NOT_FOUND
    assert "there is no user 'nobody'" in why[0].message


def _log(platform: Any, rank: int, *texts: str) -> None:
    data = b"".join(stamp(1_000_000.0 + i) + text.encode() + b"\n" for i, text in enumerate(texts))
    key = Key(1, 1, rank)
    platform.logs.append(key, platform.logs.size(key), data)


async def test_logs_are_followed_until_the_task_ends(platform: Any) -> None:
    await platform.task_manager.submit("ada", a_spec("one"), "")
    ada = await platform.caller("ada")
    _log(platform, 0, "first")
    follow = ada.logs.TailLogs(log_service_pb2.TailLogsRequest(id=1, follow=True))
    answer = await follow.read()
    assert [(line.rank, line.text) for line in answer.lines] == [(0, "first")]
    _log(platform, 0, "second")
    assert [line.text for line in (await follow.read()).lines] == ["second"]
    await platform.task_manager.stop(1, "ada", None)
    assert await follow.read() == grpc.aio.EOF
    again = ada.logs.TailLogs(log_service_pb2.TailLogsRequest(id=1, cursor=answer.cursor))
    assert [line.text async for part in again for line in part.lines] == ["second"]


async def test_logs_of_a_task_that_printed_nothing(platform: Any, expect_refusal: Any) -> None:
    await platform.task_manager.submit("ada", a_spec("one"), "")
    ada, eve = await platform.caller("ada"), await platform.caller("eve")
    parts = [p async for p in ada.logs.TailLogs(log_service_pb2.TailLogsRequest(id=1))]
    assert [len(p.lines) for p in parts] == [0]
    for caller, request, code in (
        (eve, log_service_pb2.TailLogsRequest(id=1), C.NOT_FOUND),
        (ada, log_service_pb2.TailLogsRequest(id=1, cursor="rubbish"), C.INVALID_ARGUMENT),
        (ada, log_service_pb2.TailLogsRequest(id=1, ranks=[-1]), C.INVALID_ARGUMENT),
    ):
        async with expect_refusal() as why:
            await caller.logs.TailLogs(request).read()
        assert why[0].code is code
