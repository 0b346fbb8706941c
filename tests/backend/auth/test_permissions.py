"""Permissions to see and change tasks and accounts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.auth.permissions import (
    Identity,
    can_see_task,
    lost_permissions,
    require_may_modify,
    require_reach,
    require_runs_as_self,
    require_self_or_admin,
)
from hai_backend.domain.accounts.user import Role, TokenScope, User
from hai_backend.domain.errors import Denied
from hai_backend.domain.spec import TaskType
from tests.support.builders import a_task

ADA = Identity(User("ada", groups=("vision",)))
BOB = Identity(User("bob", groups=("vision",)))
EVE = Identity(User("eve", groups=("speech",)))
OPERATOR = Identity(User("olga", Role.OPERATOR))
CAREFUL = replace(OPERATOR, scope=TokenScope.SUBMIT)
PRIVATE = a_task(user="ada")
SHARED = a_task(user="ada", shared_in_group=True)


@pytest.mark.parametrize(
    ("who", "task", "sight", "change"),
    [
        pytest.param(ADA, PRIVATE, True, True, id="one's own"),
        pytest.param(BOB, PRIVATE, False, False, id="a colleague's private one"),
        pytest.param(BOB, SHARED, True, False, id="a colleague's shared one"),
        pytest.param(EVE, SHARED, False, False, id="a stranger's shared one"),
        pytest.param(OPERATOR, PRIVATE, True, True, id="an operator"),
        pytest.param(CAREFUL, PRIVATE, True, False, id="an operator's token for own tasks"),
    ],
)
def test_permission_to_see_and_change_a_task(
    who: Identity, task: object, sight: bool, change: bool
) -> None:
    assert can_see_task(who, task, ("vision",)) is sight  # type: ignore[arg-type]
    if change:
        require_may_modify(who, task)  # type: ignore[arg-type]
        return
    with pytest.raises(Denied, match="belongs to ada"):
        require_may_modify(who, task)  # type: ignore[arg-type]


def test_narrow_token_changes_no_resources_of_others() -> None:
    require_reach(OPERATOR, "ada", "workspace w")
    require_reach(CAREFUL, "olga", "workspace w")
    with pytest.raises(Denied, match="workspace w belongs to ada; a token of scope SUBMIT"):
        require_reach(CAREFUL, "ada", "workspace w")


def test_nobody_acts_as_another_user_in_a_dev_container() -> None:
    bob_as_ada, lab = replace(ADA, holder="bob"), replace(PRIVATE.spec, task_type=TaskType.JUPYTER)
    require_runs_as_self(ADA, lab, "dev container 1")
    require_runs_as_self(bob_as_ada, PRIVATE.spec, "dev container 1")
    with pytest.raises(Denied, match="dev container 1 is for ada alone, not for bob as ada"):
        require_runs_as_self(bob_as_ada, lab, "dev container 1")


def test_right_comes_from_a_grant_or_a_role() -> None:
    assert Identity(User("ada", rights=("assign_nodes",))).has_right("assign_nodes")
    assert not ADA.has_right("assign_nodes")
    assert OPERATOR.has_right("assign_nodes")


@pytest.mark.parametrize(
    ("now", "less"),
    [
        pytest.param(User("ada", Role.OPERATOR, ("vision",), rights=("x",)), "", id="the same"),
        pytest.param(User("ada", Role.ADMIN, ("vision", "b"), rights=("x", "y")), "", id="more"),
        pytest.param(
            User("ada", Role.USER, ("vision",), rights=("x",)), "the role OPERATOR", id="role"
        ),
        pytest.param(User("ada", Role.OPERATOR, ("speech",)), "vision, x", id="group and right"),
    ],
)
def test_lost_permissions_are_named(now: User, less: str) -> None:
    before = Identity(User("ada", Role.OPERATOR, ("vision",), rights=("x",)))
    assert lost_permissions(before, Identity(now)) == less


def test_account_resources_are_for_the_user_and_admins() -> None:
    require_self_or_admin(ADA, "ada", "tokens")
    require_self_or_admin(Identity(User("root", Role.ADMIN)), "ada", "tokens")
    for who in (BOB, OPERATOR):
        with pytest.raises(Denied, match="tokens of ada"):
            require_self_or_admin(who, "ada", "tokens")
