"""Rights beyond roles: permitted calls, expiry and limits, and tokens that act as other users."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import pytest

from hai.v1 import node_service_pb2 as npb
from hai.v1 import task_service_pb2 as tpb
from hai.v1 import user_pb2
from hai.v1 import user_service_pb2 as upb
from hai_backend.domain.accounts.right import Grant, Right, right_problem
from hai_backend.domain.accounts.user import Role, TokenScope, User

C = grpc.StatusCode


def granting(subject: str, right: str, **fields: Any) -> upb.GrantRightRequest:
    return upb.GrantRightRequest(grant=user_pb2.Grant(subject=subject, right=right, **fields))


def account(name: str, role: str = "ROLE_USER", **fields: Any) -> user_pb2.User:
    return user_pb2.User(name=name, role=user_pb2.Role.Value(role), active=True, **fields)


async def eves(platform: Any, make_spec: Any) -> int:
    eve = await platform.caller("eve")
    task = await eve.tasks.CreateTask(tpb.CreateTaskRequest(spec=make_spec("hers")))
    return int(task.id)


@pytest.mark.parametrize(
    "subject", [pytest.param("ada", id="a user"), pytest.param("vision", id="the user's group")]
)
async def test_right_permits_its_calls_until_it_is_revoked(
    platform: Any, make_spec: Any, expect_refusal: Any, subject: str
) -> None:
    root, ada = await platform.caller("root"), await platform.caller("ada")
    task, of_group = await eves(platform, make_spec), subject == "vision"
    await root.users.GrantRight(granting(subject, "manage_tasks", subject_is_group=of_group))
    assert (await ada.tasks.GetTask(tpb.GetTaskRequest(id=task))).user == "eve"
    await ada.tasks.SuspendTask(tpb.SuspendTaskRequest(id=task, hold=True))
    assert len((await ada.tasks.ListTasks(tpb.ListTasksRequest())).tasks) == 1
    assert list((await ada.users.WhoAmI(upb.WhoAmIRequest())).user.rights) == ["manage_tasks"]
    async with expect_refusal() as why:
        await ada.nodes.CordonNode(npb.CordonNodeRequest(name="n0"))
    assert "CordonNode is for the role OPERATOR or the right manage_nodes" in why[0].message
    await root.users.RevokeRight(
        upb.RevokeRightRequest(subject=subject, subject_is_group=of_group, right="manage_tasks")
    )
    async with expect_refusal() as why:
        await ada.tasks.GetTask(tpb.GetTaskRequest(id=task))
    assert why[0].code is C.NOT_FOUND


async def test_right_expires(platform: Any, expect_refusal: Any) -> None:
    ada = await platform.caller("ada")
    await platform.directory.grant(Grant("ada", False, "manage_nodes", platform.clock.now() + 60))
    await ada.nodes.CordonNode(npb.CordonNodeRequest(name="n0"))
    platform.clock.advance(60)
    async with expect_refusal() as why:
        await ada.nodes.UncordonNode(npb.UncordonNodeRequest(name="n0"))
    assert why[0].reason == "ROLE_TOO_LOW"


async def test_rights_survive_a_restart(platform: Any) -> None:
    await platform.directory.grant(Grant("vision", True, "ports:4"))
    await platform.directory.load()
    ada = platform.directory.with_current_rights(
        platform.directory.user("ada"), platform.clock.now()
    )
    assert ada.rights == ("ports:4",)


async def test_existing_user_with_an_invalid_name_can_be_changed(
    platform: Any, expect_refusal: Any
) -> None:
    root, first = await platform.caller("root"), account("Ada.L", "ROLE_ADMIN", uid=20_000)
    async with expect_refusal() as why:
        await root.users.CreateUser(upb.CreateUserRequest(user=first))
    assert "user.name" in dict(why[0].violations)
    await platform.directory.create_user(User("Ada.L", Role.ADMIN))  # the name of a first admin
    changed = await root.users.UpdateUser(upb.UpdateUserRequest(user=first))
    assert (changed.name, changed.uid) == ("Ada.L", 20_000)


@pytest.mark.parametrize(
    ("right", "why"),
    [
        pytest.param("manage_task", "there is no right 'manage_task'", id="unknown"),
        pytest.param("manage_tasks:1", "manage_tasks takes no argument", id="an argument too many"),
        pytest.param("ports", "must look like ports:4", id="no argument"),
        pytest.param("ports:-1", "must look like ports:4", id="no number"),
        pytest.param("cap:", "must look like cap:IPC_LOCK", id="nothing of root's"),
        pytest.param("cap:sys admin", "did you mean SYS_ADMIN", id="no capability"),
        pytest.param("cap:CAP_SYS_PTRACE", "did you mean SYS_PTRACE", id="its other name"),
        pytest.param("cap:IPC_LOK", "did you mean IPC_LOCK or", id="a capability mistyped"),
        pytest.param("cap:ALL", "'ALL' is no capability of Linux, as", id="every capability"),
        pytest.param("image:", "must look like image:", id="every image"),
        pytest.param("image:https://r", "must look like image:", id="an address"),
        pytest.param("", "there is no right ''", id="nothing"),
    ],
)
async def test_unknown_rights_are_refused(
    platform: Any, expect_refusal: Any, right: str, why: str
) -> None:
    root = await platform.caller("root")
    async with expect_refusal() as told:
        await root.users.GrantRight(granting("ada", right))
    assert told[0].reason == "NO_SUCH_RIGHT"
    assert why in dict(told[0].violations)["grant.right"]
    async with expect_refusal() as told:
        await root.users.UpdateUser(upb.UpdateUserRequest(user=account("ada", rights=[right])))
    assert why in dict(told[0].violations)["user.rights[0]"]


@pytest.mark.parametrize(
    "right",
    [
        *("image:r.example", "image:r.example:5000/team/", "image:r.example/a/b", "cap:IPC_LOCK"),
        *("custom_service:tcp:*", "gid:2000", "privileged", "assign_nodes"),
    ],
)
def test_valid_rights_are_accepted(right: str) -> None:
    assert right_problem(right) == ""


async def test_grant_to_an_unknown_user_is_refused(platform: Any, expect_refusal: Any) -> None:
    root = await platform.caller("root")
    async with expect_refusal() as why:
        await root.users.GrantRight(granting("nobody", "manage_tasks"))
    assert why[0].code is C.NOT_FOUND
    async with expect_refusal() as why:
        await root.users.RevokeRight(upb.RevokeRightRequest(subject="ada", right="manage_tasks"))
    assert "ada has not been granted manage_tasks" in why[0].message


@pytest.mark.parametrize("right", [r for r in Right if r.startswith("manage_")])
async def test_no_right_lets_its_holder_gain_more_permissions(
    platform: Any, expect_refusal: Any, right: Right
) -> None:
    await platform.directory.grant(Grant("ada", False, right))
    await platform.directory.grant(Grant("speech", True, "cap:SYS_ADMIN"))
    ada = await platform.caller("ada")
    rising = [
        ada.users.GrantRight(granting("ada", "privileged")),
        ada.users.CreateUser(upb.CreateUserRequest(user=account("new", "ROLE_OPERATOR"))),
        ada.users.CreateUser(upb.CreateUserRequest(user=account("new", rights=["host_ipc"]))),
        ada.users.CreateUser(upb.CreateUserRequest(user=account("new", groups=["speech"]))),
        ada.users.UpdateUser(upb.UpdateUserRequest(user=account("ada", "ROLE_ADMIN"))),
        ada.users.UpdateUser(upb.UpdateUserRequest(user=account("ada", groups=["speech"]))),
        ada.users.UpdateUser(upb.UpdateUserRequest(user=account("root"))),
        ada.users.CreateToken(upb.CreateTokenRequest(user="root", scope=1)),
        ada.users.CreateToken(upb.CreateTokenRequest(user="eve", scope=1)),
        ada.users.ListTokens(upb.ListTokensRequest(user="olga")),
    ]
    for call in rising:
        async with expect_refusal() as why:
            await call
        assert why[0].code is C.PERMISSION_DENIED


async def test_users_with_the_right_create_accounts_and_tokens(platform: Any) -> None:
    for right in ("manage_users", "manage_tokens", "manage_quotas"):
        await platform.directory.grant(Grant("vision", True, right))
    ada = await platform.caller("ada")
    await ada.users.CreateUser(
        upb.CreateUserRequest(user=account("new", uid=1200, groups=["vision"]))
    )
    token = await ada.users.CreateToken(upb.CreateTokenRequest(user="new", scope=1))
    new = platform.with_token(token.secret)
    assert (await new.users.WhoAmI(upb.WhoAmIRequest())).user.name == "new"
    assert (await ada.users.RevokeToken(upb.RevokeTokenRequest(id=token.id))).revoked
    quota = user_pb2.Quota(subject="new", group="default", nodes=1)
    assert (await ada.users.SetQuota(upb.SetQuotaRequest(quota=quota))).nodes == 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param(account("new", groups=["speech"]), "the user group speech", id="a group"),
        pytest.param(account("new", uid=1001), "the uid 1001", id="somebody's uid"),
        pytest.param(
            account("ada", groups=["vision", "speech"]), "the user group speech", id="own"
        ),
        pytest.param(account("bob", uid=1300, groups=["vision"]), "the uid 1300", id="another uid"),
    ],
)
async def test_only_admins_give_groups_and_uids_of_others(
    platform: Any, expect_refusal: Any, asked: user_pb2.User, why: str
) -> None:
    await platform.directory.grant(Grant("vision", True, "manage_users"))
    bob = replace(platform.directory.user("bob"), uid=1001, groups=("vision",))
    await platform.directory.update_user(bob)
    ada, root = await platform.caller("ada"), await platform.caller("root")
    for caller, refused in ((ada, True), (root, False)):
        call, request = (
            (caller.users.CreateUser, upb.CreateUserRequest(user=asked))
            if asked.name == "new"
            else (caller.users.UpdateUser, upb.UpdateUserRequest(user=asked))
        )
        if refused:
            async with expect_refusal() as told:
                await call(request)
            assert f"{asked.name} cannot get {why}: that is for admins" in told[0].message
        else:
            assert (await call(request)).name == asked.name


async def test_container_token_of_an_admin_has_the_role_user(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    task = await eves(platform, make_spec)
    root = platform.with_token(await platform.token("root", TokenScope.CONTAINER))
    user = (await root.users.WhoAmI(upb.WhoAmIRequest())).user
    assert (user.name, user.role) == ("root", user_pb2.ROLE_USER)
    async with expect_refusal() as why:
        await root.tasks.GetTask(tpb.GetTaskRequest(id=task))
    assert why[0].code is C.NOT_FOUND
    mine = await root.tasks.CreateTask(tpb.CreateTaskRequest(spec=make_spec("mine")))
    assert (await root.tasks.StopTask(tpb.StopTaskRequest(id=mine.id))).user == "root"


async def test_container_tokens_cannot_be_created_by_a_call(
    platform: Any, expect_refusal: Any
) -> None:
    ada = await platform.caller("ada")
    async with expect_refusal() as why:
        await ada.users.CreateToken(upb.CreateTokenRequest(scope=user_pb2.TOKEN_SCOPE_CONTAINER))
    assert why[0].violations[0][1] == "must be ALL, READ or SUBMIT"


async def test_holder_sees_and_revokes_only_tokens_that_they_hold(
    platform: Any, expect_refusal: Any
) -> None:
    made, _ = await platform.directory.create_token("ada", TokenScope.ALL, 0.0)
    acting = platform.with_token(await platform.token("ada", holder="bob"))
    seen = (await acting.users.WhoAmI(upb.WhoAmIRequest())).tokens
    assert {token.holder for token in seen} == {"bob"}
    async with expect_refusal() as why:
        await acting.users.RevokeToken(upb.RevokeTokenRequest(id=made.id))
    assert "revokes only tokens of bob" in why[0].message
    assert (await acting.users.RevokeToken(upb.RevokeTokenRequest(id=seen[0].id))).revoked


async def test_token_that_acts_for_another(platform: Any, make_spec: Any) -> None:
    ada, bob = await platform.caller("ada"), await platform.caller("bob")
    token = await ada.users.CreateToken(upb.CreateTokenRequest(scope=1, holder="bob"))
    assert (token.user, token.holder) == ("ada", "bob")
    acting = platform.with_token(token.secret)
    task = await acting.tasks.CreateTask(tpb.CreateTaskRequest(spec=make_spec("for ada")))
    assert task.user == "ada"
    await acting.tasks.SuspendTask(tpb.SuspendTaskRequest(id=task.id, hold=True))
    assert [(r.actor, r.method) for r in (await platform.store.audit()).rows[:2]] == [
        ("bob as ada", "SuspendTask"),
        ("bob as ada", "CreateTask"),  # the timeline of the task names ada
    ]
    for caller in (ada, bob):
        known = (await caller.users.ListTokens(upb.ListTokensRequest())).tokens
        assert token.id in {t.id for t in known}
    assert (await bob.users.RevokeToken(upb.RevokeTokenRequest(id=token.id))).revoked


async def test_token_that_acts_for_another_makes_no_tokens(
    platform: Any, expect_refusal: Any
) -> None:
    secret = await platform.token("ada", holder="bob")
    acting = platform.with_token(secret)
    async with expect_refusal() as why:
        await acting.users.CreateToken(upb.CreateTokenRequest(scope=1))
    assert "bob as ada makes and lists no tokens" in why[0].message


@pytest.mark.parametrize("gone", ["ada", "bob"])
async def test_token_is_valid_while_user_and_holder_are_active(
    platform: Any, expect_refusal: Any, gone: str
) -> None:
    secret = await platform.token("ada", TokenScope.ALL, holder="bob")
    await platform.directory.update_user(User(gone, Role.USER, active=False))
    async with expect_refusal() as why:
        await platform.with_token(secret).users.WhoAmI(upb.WhoAmIRequest())
    assert why[0].reason == "USER_INACTIVE"


async def test_unknown_holder_is_refused(platform: Any, expect_refusal: Any) -> None:
    ada = await platform.caller("ada")
    async with expect_refusal() as why:
        await ada.users.CreateToken(upb.CreateTokenRequest(scope=1, holder="nobody"))
    assert why[0].code is C.NOT_FOUND
