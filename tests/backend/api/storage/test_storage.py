"""Mount rules: validation, contradictions, warnings, and the mounts of tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import grpc
import pytest

from hai.v1 import storage_service_pb2 as pb
from hai.v1 import task_service_pb2 as tpb
from hai.v1.storage_pb2 import (
    MOUNT_ACTION_REMOVE,
    MOUNT_KIND_CSI,
    MOUNT_KIND_HOST_PATH,
    MountRule,
)
from hai_backend.api.storage.convert import rule_from_proto
from hai_backend.domain.errors import Invalid

C = grpc.StatusCode


def adding(path: str, source: str = "/srv/x", *owners: str, **more: Any) -> Any:
    flags = {key: more.pop(key) for key in ("force", "validate_only") if key in more}
    rule = MountRule(owners=owners or ["public"], mount_path=path, source=source, **more)
    return pb.CreateMountRuleRequest(rule=rule, **flags)


async def mounts_of(caller: Any, **filters: Any) -> dict[str, str]:
    found = await caller.storage.ListMounts(pb.ListMountsRequest(**filters))
    return {mount.mount_path: mount.source for mount in found.mounts}


async def rules(caller: Any) -> list[MountRule]:
    return list((await caller.storage.ListMountRules(pb.ListMountRulesRequest())).rules)


async def test_rule_is_stored_as_it_was_sent(platform: Any) -> None:
    olga = await platform.caller("olga")
    create_request = adding(
        "/lab/{user.name}",
        "lustre.csi.example",
        "vision",
        "ada",
        kind=MOUNT_KIND_CSI,
        attributes={"volume": "of {user.group}"},
        conditions=["task.type == 'training'"],
        writable=True,
        mount_code=2,
    )
    made = (await olga.storage.CreateMountRule(create_request)).rule
    assert made.id == 1
    assert await rules(olga) == [made]
    made.id, made.action = 0, 0
    assert made == create_request.rule
    assert (await olga.storage.CreateMountRule(adding("/b"))).rule.kind == MOUNT_KIND_HOST_PATH


async def test_all_violations_are_reported_together(platform: Any, expect_refusal: Any) -> None:
    olga = await platform.caller("olga")
    wrong = adding("/{user.shoe}", "../x", "a b", conditions=["1 +"], host_type="Door")
    async with expect_refusal() as why:
        await olga.storage.CreateMountRule(wrong)
    assert set(dict(why[0].violations)) == {
        *("rule.owners[0]", "rule.mount_path", "rule.source", "rule.conditions[0]"),
        "rule.host_type",
    }
    assert await rules(olga) == []


async def test_unknown_action_is_refused(platform: Any, expect_refusal: Any) -> None:
    olga = await platform.caller("olga")
    async with expect_refusal() as why:
        await olga.storage.CreateMountRule(adding("/a", action=99, kind=98))
    assert dict(why[0].violations) == {
        "rule.action": "99 is not known to this server",
        "rule.kind": "98 is not known to this server",
    }
    assert await rules(olga) == []


async def test_only_a_limited_number_of_entries_is_checked(
    platform: Any, expect_refusal: Any
) -> None:
    request = adding("/a", "/srv/x", *(f"{i} {i}" for i in range(1500)))
    request.rule.conditions.extend(["no condition"] * 3000)
    with pytest.raises(Invalid) as wrong:
        rule_from_proto(request.rule, 1)
    fields = Counter(v.field.partition("[")[0] for v in wrong.value.violations)
    assert fields == {"rule.owners": 1001, "rule.conditions": 21}
    async with expect_refusal():
        await (await platform.caller("olga")).storage.CreateMountRule(request)


async def test_sources_of_mounts_are_for_operators(platform: Any) -> None:
    olga, ada = await platform.caller("olga"), await platform.caller("ada")
    await olga.storage.CreateMountRule(adding("/ws", "/srv/ws/{user.name}"))
    assert await mounts_of(ada) == {"/ws": ""}
    assert await mounts_of(olga, user="ada") == {"/ws": "/srv/ws/ada"}


async def test_mounts_of_one_task(platform: Any, make_spec: Any, expect_refusal: Any) -> None:
    olga, ada, eve = [await platform.caller(name) for name in ("olga", "ada", "eve")]
    task = await ada.tasks.CreateTask(tpb.CreateTaskRequest(spec=make_spec("t")))
    await olga.storage.CreateMountRule(adding("/task", "/srv/{task.id}"))
    await olga.storage.CreateMountRule(adding("/all", "/srv/all"))
    assert await mounts_of(olga, task_id=task.id) == {
        "/all": "/srv/all",
        "/task": f"/srv/{task.id}",
    }
    assert await mounts_of(ada) == {"/all": ""}
    assert await mounts_of(ada, task_id=task.id) == {"/all": "", "/task": ""}
    async with expect_refusal() as why:
        await mounts_of(eve, task_id=task.id)
    assert why[0].code is C.NOT_FOUND
    async with expect_refusal() as why:
        await mounts_of(olga, user="nobody")
    assert why[0].code is C.NOT_FOUND


CONTRADICTIONS = [
    pytest.param(adding("/a"), adding("/a", "/srv/y"), True, id="for the same people"),
    pytest.param(adding("/a"), adding("/a", "/srv/y", "ada"), False, id="a user over all"),
    pytest.param(
        adding("/a", "/srv/x", "vision"),
        adding("/a", "/srv/y", "public"),
        True,
        id="groups that share a user",
    ),
    pytest.param(adding("/x/{user.name}"), adding("/x/ada", "/srv/y"), True, id="by their holes"),
    pytest.param(
        adding("/a", conditions=["task.type == 'training'"]),
        adding("/a", "/srv/y"),
        False,
        id="one with a condition",
    ),
    pytest.param(
        adding("/a", mount_code=1), adding("/a", "/srv/y", mount_code=2), False, id="other codes"
    ),
    pytest.param(adding("/a"), adding("/b"), False, id="other paths"),
    pytest.param(
        adding("/a"), adding("/a", "", action=MOUNT_ACTION_REMOVE), False, id="taken away"
    ),
]


@pytest.mark.parametrize(("first", "second", "contradict"), CONTRADICTIONS)
async def test_contradicting_rules_are_refused(
    platform: Any, expect_refusal: Any, first: Any, second: Any, contradict: bool
) -> None:
    olga = await platform.caller("olga")
    await olga.storage.CreateMountRule(first)
    if not contradict:
        await olga.storage.CreateMountRule(second)
        return
    async with expect_refusal() as why:
        await olga.storage.CreateMountRule(second)
    assert why[0].reason == "MOUNT_CONFLICT"
    assert "--force" in why[0].message
    assert len(await rules(olga)) == 1
    second.force = True
    assert (await olga.storage.CreateMountRule(second)).warnings


async def test_audit_row_names_the_rule(platform: Any) -> None:
    olga = await platform.caller("olga")
    await olga.storage.CreateMountRule(adding("/a"))
    await olga.storage.DeleteMountRule(pb.DeleteMountRuleRequest(id=1))
    told = [(r.method, r.resource, r.what) for r in (await platform.store.audit()).rows]
    assert told == [
        ("DeleteMountRule", "1", "id=1"),
        ("CreateMountRule", "1", "owners=['public'] mount_path='/a' source='/srv/x'"),
    ]


async def test_unusual_rules_cause_warnings(platform: Any) -> None:
    olga = await platform.caller("olga")
    await olga.storage.CreateMountRule(adding("/a"))
    answer = await olga.storage.CreateMountRule(adding("/a", "/srv/y", "ada", "visoin"))
    assert [w.split(":")[0] for w in answer.warnings] == [
        "rule 1 mounts /a, too",
        "user or user group visoin not found",
    ]


async def test_validation_adds_no_rule_and_deleted_rules_are_not_found(
    platform: Any, expect_refusal: Any
) -> None:
    olga = await platform.caller("olga")
    await olga.storage.CreateMountRule(adding("/a", validate_only=True))
    assert await rules(olga) == []
    await olga.storage.CreateMountRule(adding("/a"))
    await olga.storage.DeleteMountRule(pb.DeleteMountRuleRequest(id=1))
    assert await mounts_of(olga) == {}
    async with expect_refusal() as why:
        await olga.storage.DeleteMountRule(pb.DeleteMountRuleRequest(id=1))
    assert why[0].code is C.NOT_FOUND


@pytest.mark.parametrize("launcher", ["kubernetes"])
async def test_task_whose_storage_cannot_be_mounted_is_refused(
    platform: Any, make_spec: Any, expect_refusal: Any, launcher: str
) -> None:
    await (await platform.caller("olga")).storage.CreateMountRule(adding("/work/{task.name}"))
    ada = await platform.caller("ada")
    for only in (False, True):
        async with expect_refusal() as why:
            request = tpb.CreateTaskRequest(spec=make_spec("../etc"), validate_only=only)
            await ada.tasks.CreateTask(request)
        assert why[0].code is C.INVALID_ARGUMENT
        assert "the storage of row 1 cannot be mounted" in str(why[0])
    await ada.tasks.CreateTask(tpb.CreateTaskRequest(spec=make_spec("etc")))
