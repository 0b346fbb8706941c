"""Scheduling policies of groups: permission, validation, audit rows and previews."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hai.v1 import node_pb2, policy_pb2
from hai.v1 import node_service_pb2 as npb
from hai.v1 import task_service_pb2 as tpb
from hai_backend.api.scheduling.convert_policy import NAMES, policy_from_proto, policy_to_proto
from hai_backend.controllers.scheduling.snapshot import sched_task
from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.lifecycle import events as ev
from hai_backend.scheduler.policy.group_policy import resolve_policy
from hai_backend.scheduler.policy.policy import Demotion, Policy, parse, to_mapping
from tests.support.builders import a_spec

C = grpc.StatusCode


def request(
    *paths: str, validate_only: bool = False, packed: bool = False, **policy: Any
) -> npb.UpdateGroupRequest:
    return npb.UpdateGroupRequest(
        name="default",
        packed=packed,
        policy=policy_pb2.SchedulingPolicy(**policy),
        update_mask=FieldMask(paths=paths) if paths else None,
        validate_only=validate_only,
    )


async def listed(caller: Any) -> node_pb2.Group:
    return (await caller.nodes.ListGroups(npb.ListGroupsRequest())).groups[0]


def test_message_has_every_setting() -> None:
    assert sorted(NAMES) == sorted(field.name for field in fields(Policy))


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(Policy(), id="default"),
        pytest.param(Policy(demotion={}, default_quota=3), id="no demotion"),
        pytest.param(
            parse({"ranking": "attained", "urgent": "LOW", "time_slices": False}), id="set"
        ),
        pytest.param(Policy(demotion={Priority.HIGH: Demotion(Priority.LOW, 0.0)}), id="demotion"),
    ],
)
def test_policy_comes_back_from_its_message(policy: Policy) -> None:
    assert parse(policy_from_proto(policy_to_proto(to_mapping(policy)))) == policy


async def test_settings_are_stored_listed_and_unset(platform: Any) -> None:
    olga = await platform.caller("olga")
    first = await olga.nodes.UpdateGroup(
        request("policy.staying", "policy.urgent", staying=2, urgent=40)
    )
    assert first.policy == policy_pb2.SchedulingPolicy(staying=2, urgent=40)
    assert (first.policy_in_force.staying, first.policy_in_force.daily_suspensions) == (2, 24)
    assert await listed(olga) == first
    second = await olga.nodes.UpdateGroup(request("policy.urgent", "policy.demotion", demotion={}))
    assert second.policy == policy_pb2.SchedulingPolicy(staying=2, demotion={})
    assert second.policy_in_force.urgent == Priority.HIGH
    (stored,) = await platform.store.groups()
    assert resolve_policy(stored, Policy()) == Policy(staying=2, demotion={})
    third = await olga.nodes.UpdateGroup(request("policy", time_slices=False))
    assert third.policy == policy_pb2.SchedulingPolicy(time_slices=False)
    await olga.nodes.UpdateGroup(request("policy"))
    assert await platform.store.groups() == [Group("default")]


async def test_empty_group_without_settings_is_not_listed(platform: Any) -> None:
    olga = await platform.caller("olga")
    slip = npb.UpdateGroupRequest(
        name="defualt",
        policy=policy_pb2.SchedulingPolicy(staying=2.0),
        update_mask=FieldMask(paths=["policy.staying"]),
    )

    async def names() -> list[str]:
        groups = (await olga.nodes.ListGroups(npb.ListGroupsRequest())).groups
        return [group.name for group in groups]

    await olga.nodes.UpdateGroup(slip)
    assert await names() == ["default", "defualt"]
    slip.ClearField("policy")
    await olga.nodes.UpdateGroup(slip)
    assert await names() == ["default"]


async def test_update_without_a_mask_changes_the_fields_that_are_set(platform: Any) -> None:
    olga = await platform.caller("olga")
    await olga.nodes.UpdateGroup(request(packed=True, staying=3))
    group = await olga.nodes.UpdateGroup(request("policy.urgent", urgent=30))
    assert (group.packed, group.policy.staying, group.policy.urgent) == (True, 3, 30)
    assert not (await olga.nodes.UpdateGroup(request())).packed


async def test_all_violations_are_reported_together_and_nothing_changes(
    platform: Any, expect_refusal: Any
) -> None:
    olga = await platform.caller("olga")
    rows = [policy_pb2.Demotion(priority=10, to=30, after_seconds=-1)]
    async with expect_refusal() as why:
        await olga.nodes.UpdateGroup(
            request(
                "packd",
                "policy",
                packed=True,
                staying=0.5,
                urgent=31,
                ranking=9,
                overhead_share=float("nan"),
                demotion=policy_pb2.Demotions(rows=rows),
            )
        )
    assert why[0].code is C.INVALID_ARGUMENT
    assert dict(why[0].violations) == {
        "update_mask": "there is no setting 'packd'; did you mean packed?",
        "policy.ranking": "there is no '9'; there are learned, attained, submitted",
        "policy.demotion.NORMAL.to": "must be a level below NORMAL, not 'HIGH'",
        "policy.demotion.NORMAL.after_seconds": "must be a number from 0 to 1e+09, not -1.0",
        "policy.staying": "must be a number from 1 to 1000, not 0.5",
        "policy.overhead_share": "must be a number from 1e-06 to 0.999, not nan",
        "policy.urgent": "there is no '31'; there are EXTREME_HIGH, VERY_HIGH, HIGH, ABOVE_NORMAL,"
        " NORMAL, UNDER_NORMAL, BELOW_NORMAL, LOW",
    }
    assert await platform.store.groups() == []


async def test_audit_says_old_and_new_values(platform: Any, expect_refusal: Any) -> None:
    olga, ada = await platform.caller("olga"), await platform.caller("ada")
    await olga.nodes.UpdateGroup(request(packed=True, staying=2))
    await olga.nodes.UpdateGroup(request("policy.staying", validate_only=True))  # has no audit row
    await olga.nodes.UpdateGroup(request("policy.staying"))
    await olga.nodes.UpdateGroup(request("policy.staying"))
    async with expect_refusal() as why:
        await ada.nodes.UpdateGroup(request(staying=2))
    assert why[0].code is C.PERMISSION_DENIED
    await platform.service.stop(0)
    rows = [(r.actor, r.resource, r.what, r.code) for r in (await platform.store.audit()).rows]
    assert rows == [
        ("ada", "default", "name='default' staying=2.0", "PERMISSION_DENIED"),
        ("olga", "default", "nothing changed", "OK"),
        ("olga", "default", "staying: 2.0 -> 1.6 (default)", "OK"),
        ("olga", "default", "packed: False -> True; staying: 1.6 (default) -> 2.0", "OK"),
    ]


async def test_stored_policy_that_cannot_be_read_can_be_replaced(platform: Any) -> None:
    await platform.cluster.save_group(Group("default", policy='{"staying": "x"}'))
    olga = await platform.caller("olga")
    assert (await listed(olga)).policy == policy_pb2.SchedulingPolicy()
    group = await olga.nodes.UpdateGroup(request("policy.urgent", urgent=30))
    assert group.policy == policy_pb2.SchedulingPolicy(urgent=30)


async def test_quota_of_a_group_counts_at_submission(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    olga, ada = await platform.caller("olga"), await platform.caller("ada")
    await olga.nodes.UpdateGroup(request("policy.default_quota", default_quota=1))
    async with expect_refusal() as why:
        await ada.tasks.CreateTask(tpb.CreateTaskRequest(spec=make_spec("two", node_count=2)))
    assert why[0].reason == "QUOTA_EXCEEDED"


async def test_preview_shows_the_next_pass_and_changes_nothing(
    platform: Any, expect_refusal: Any
) -> None:
    for name in ("first", "second"):
        await platform.task_manager.submit("ada", a_spec(name, 2), "")
    waiting = tuple(sched_task(task) for task in platform.task_manager.unfinished().values())
    nodes = tuple(platform.cluster.nodes().values())
    platform.scheduling.current_snapshot = Snapshot(platform.clock.now(), nodes, waiting)
    olga = await platform.caller("olga")
    preview = request("policy.default_quota", default_quota=3, validate_only=True)
    group = await olga.nodes.UpdateGroup(preview)
    (task,) = group.effect.delayed.tasks
    assert (task.task_id, task.task_name, task.user) == (2, "second", "ada")
    assert "may hold 3 at NORMAL" in task.reason
    assert (group.effect.delayed.count, group.effect.starts.count) == (1, 0)
    assert group.policy.default_quota == 3
    assert (await listed(olga)).policy == policy_pb2.SchedulingPolicy()
    assert await platform.store.groups() == []
    await platform.task_manager.apply(1, ev.RunPlaced(("n0", "n1"), Priority.NORMAL, "fits"))
    async with expect_refusal() as why:
        await olga.nodes.UpdateGroup(request(packed=True, validate_only=True))
    assert why[0].reason == "GROUP_IN_USE"
