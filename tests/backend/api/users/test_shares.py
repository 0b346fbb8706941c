"""Shares: validation, visibility, and held nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest

from hai.v1 import user_service_pb2 as upb
from hai.v1.user_pb2 import Share
from hai_backend.api.nodes.group_capacity import Capacity
from hai_backend.api.users.shares import Shares
from hai_backend.domain.accounts.user import Share as StoredShare
from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ResourceSpec, TaskSpec
from hai_backend.lifecycle import events as ev
from tests.support.builders import a_spec

C = grpc.StatusCode


def share(user_group: str = "vision", group: str = "default", **fields: Any) -> upb.SetShareRequest:
    return upb.SetShareRequest(share=Share(user_group=user_group, group=group, **fields))


async def told(caller: Any, **which: str) -> list[tuple[str, str, int]]:
    found = (await caller.users.ListShares(upb.ListSharesRequest(**which))).shares
    return [(s.user_group, s.group, s.held) for s in found]


def spec(name: str, nodes: int = 1, **resource: Any) -> TaskSpec:
    return replace(a_spec(name), resource=ResourceSpec(node_count=nodes, **resource))


async def running(platform: Any, user: str, *nodes: str, **resource: Any) -> None:
    number = len(platform.task_manager.unfinished())
    task = await platform.task_manager.submit(user, spec(f"{number}", len(nodes), **resource), "")
    await platform.task_manager.apply(task.id, ev.RunPlaced(nodes, Priority.NORMAL, "fits"))


async def test_share_is_stored_with_defaults(platform: Any) -> None:
    root = await platform.caller("root")
    wanted = share(guaranteed=1, weight=2, limit=3)
    assert await root.users.SetShare(wanted) == wanted.share
    assert platform.directory.shares() == (StoredShare("vision", "default", 1, 2, 3),)
    assert await root.users.SetShare(share()) == share().share
    assert platform.directory.shares() == (StoredShare("vision", "default"),)
    listed = (await root.users.ListShares(upb.ListSharesRequest())).shares
    assert list(listed) == [share().share]
    assert not listed[0].HasField("limit")


REFUSED = [
    pytest.param(
        share("a b", "x y", guaranteed=-1, weight=-1, limit=-1),
        {
            "share.user_group": "'a b' must be at most 63 letters",
            "share.group": "'x y' must be at most 63 letters",
            "share.guaranteed": "must be from 0 to 1000000, not -1",
            "share.weight": "must be from 0 to 10000, not -1",
            "share.limit": "must be from 0 to 1000000, not -1",
        },
        id="everything at once",
    ),
    pytest.param(share(guaranteed=1, limit=0), {"share.limit": "is 0, less"}, id="no nodes at all"),
    pytest.param(share(weight=10_001), {"share.weight": "not 10001"}, id="too heavy"),
    pytest.param(
        share(guaranteed=3, limit=2),
        {"share.limit": "is 2, less than the 3 that are guaranteed"},
        id="more is guaranteed than allowed",
    ),
    pytest.param(
        share(group="defualt"),
        {"share.group": "no node group 'defualt'; `hai groups` lists them; did you mean default?"},
        id="no such node group",
    ),
    pytest.param(
        share(guaranteed=5),
        {"share.guaranteed": "would add up to 5 nodes, and it has 4; at most 4 can"},
        id="more than there is",
    ),
    pytest.param(
        upb.SetShareRequest(),
        {"share.user_group": "'' must be", "share.group": "'' must be"},
        id="nothing",
    ),
]


@pytest.mark.parametrize(("request_", "why"), REFUSED)
async def test_invalid_requests_are_refused(
    platform: Any, expect_refusal: Any, request_: upb.SetShareRequest, why: dict[str, str]
) -> None:
    root = await platform.caller("root")
    async with expect_refusal() as found:
        await root.users.SetShare(request_)
    assert found[0].code is C.INVALID_ARGUMENT
    said = dict(found[0].violations)
    assert said.keys() == why.keys()
    assert [field for field, text in why.items() if text not in said[field]] == []
    assert platform.directory.shares() == ()


async def test_sum_of_guaranteed_parts_must_fit_into_the_group(
    platform: Any, expect_refusal: Any
) -> None:
    root = await platform.caller("root")
    await platform.cluster.update_nodes(
        [Node(f"n{i}", gpus=8) for i in range(4)] + [Node("b0", "big")]
    )
    await root.users.SetShare(share(guaranteed=3))
    await root.users.SetShare(share("speech", "big", guaranteed=1))
    await root.users.SetShare(share("speech", guaranteed=1))
    await root.users.SetShare(share(guaranteed=2))
    async with expect_refusal() as why:
        await root.users.SetShare(share("speech", guaranteed=3))
    assert why[0].violations == (
        (
            "share.guaranteed",
            "the guaranteed parts of group default would add up to 5 nodes, and it has 4;"
            " at most 2 can be guaranteed here",
        ),
    )


async def test_concurrent_changes_cannot_guarantee_too_much(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = platform.store.save_record

    async def slow(new: StoredShare) -> None:
        await asyncio.sleep(0)
        await save(new)

    monkeypatch.setattr(platform.store, "save_record", slow)
    shares = Shares(platform.directory, platform.task_manager, Capacity(platform.cluster))
    calls = (shares.set(share(name, guaranteed=3).share) for name in ("vision", "speech"))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Share, Invalid]


async def test_group_without_nodes_takes_any_guarantee(platform: Any) -> None:
    await platform.cluster.save_group(Group("new"))
    root = await platform.caller("root")
    assert (await root.users.SetShare(share(group="new", guaranteed=64))).guaranteed == 64


async def test_guarantee_that_no_longer_fits_may_stay_or_shrink(
    platform: Any, expect_refusal: Any
) -> None:
    root = await platform.caller("root")
    await platform.cluster.save_group(Group("new"))
    await root.users.SetShare(share(group="new", guaranteed=8))
    await platform.cluster.update_nodes([Node("b0", "new")])
    assert (await root.users.SetShare(share(group="new", guaranteed=8, weight=5))).weight == 5
    assert (await root.users.SetShare(share(group="new", guaranteed=4))).guaranteed == 4
    async with expect_refusal():
        await root.users.SetShare(share(group="new", guaranteed=5))


async def test_users_see_the_shares_of_their_groups(platform: Any, expect_refusal: Any) -> None:
    root, ada = await platform.caller("root"), await platform.caller("ada")
    await platform.cluster.update_nodes([Node("n0"), Node("b0", "big")])
    for request in (share(), share("speech"), share(group="big"), share("ada")):
        await root.users.SetShare(request)
    assert await told(ada) == [("vision", "big", 0), ("vision", "default", 0)]
    assert await told(ada, group="big") == [("vision", "big", 0)]
    assert [key[:2] for key in await told(root, group="default")] == [
        ("ada", "default"),
        ("speech", "default"),
        ("vision", "default"),
    ]
    async with expect_refusal() as why:
        await told(ada, user_group="speech")
    assert (why[0].code, why[0].reason) == (C.PERMISSION_DENIED, "ROLE_TOO_LOW")
    assert await told(root, user_group="speech") == [("speech", "default", 0)]


async def test_held_counts_the_nodes_of_its_users(platform: Any) -> None:
    root = await platform.caller("root")
    await root.users.SetShare(share())
    await running(platform, "ada", "n0", "n1")
    await running(platform, "bob", "n2")
    await running(platform, "eve", "n3")
    await platform.task_manager.submit("ada", spec("waits"), "")
    await running(platform, "bob", "b0", group="big")
    assert (await root.users.SetShare(share("speech"))).held == 1
    assert await told(root) == [("speech", "default", 1), ("vision", "default", 3)]
    await platform.task_manager.apply(1, ev.RankGone(1, 0))
    assert await told(root, user_group="vision") == [("vision", "default", 2)]


async def test_parts_of_nodes_are_added_up_and_rounded_up(platform: Any) -> None:
    root = await platform.caller("root")
    await platform.cluster.save_group(Group("default", packed=True))
    await root.users.SetShare(share())
    for _ in range(3):
        await running(platform, "ada", "n0", gpu=2)
    assert (await told(root))[0][2] == 1
    await running(platform, "bob", "n1", gpu=3)
    assert (await told(root))[0][2] == 2


async def test_deleted_share_is_gone(platform: Any, expect_refusal: Any) -> None:
    root = await platform.caller("root")
    await root.users.SetShare(share())
    await root.users.DeleteShare(upb.DeleteShareRequest(user_group="vision", group="default"))
    assert await told(root) == []
    async with expect_refusal() as why:
        await root.users.DeleteShare(upb.DeleteShareRequest(user_group="vision", group="default"))
    assert why[0].code is C.NOT_FOUND


async def test_audit_row_of_a_share_has_its_values(platform: Any) -> None:
    root = await platform.caller("root")
    await root.users.SetShare(share(guaranteed=2, limit=3))
    await root.users.DeleteShare(upb.DeleteShareRequest(user_group="vision", group="default"))
    await platform.service.stop(0)
    which = "user_group='vision' group='default'"
    rows = [(r.method, r.resource, r.what) for r in (await platform.store.audit()).rows]
    assert rows == [
        ("DeleteShare", "vision", which),
        ("SetShare", "vision", f"{which} guaranteed=2 limit=3"),
    ]
