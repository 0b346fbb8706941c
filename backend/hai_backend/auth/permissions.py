"""Decides what a caller may do. Pure. api/server/methods.py lists the permissions that each call needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from hai_backend.domain.accounts.right import Right
from hai_backend.domain.accounts.user import Role, TokenScope, User
from hai_backend.domain.errors import Denied
from hai_backend.domain.spec import TaskSpec, TaskType
from hai_backend.domain.task import Task

_ROLE_RANKS = {Role.USER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
_ACCOUNT_RIGHTS = frozenset({Right.MANAGE_USERS, Right.MANAGE_QUOTAS, Right.MANAGE_TOKENS})
_MANAGEMENT_RIGHTS = _ACCOUNT_RIGHTS | {
    Right.MANAGE_TASKS,
    Right.MANAGE_NODES,
    Right.MANAGE_STORAGE,
    Right.MANAGE_IMAGES,
}
_SCOPE_RANKS = {
    TokenScope.READ: 0,
    TokenScope.SUBMIT: 1,
    TokenScope.CONTAINER: 1,
    TokenScope.ALL: 2,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller, and the scope of the token."""

    user: User
    scope: TokenScope = TokenScope.ALL
    token_id: int = 0
    holder: str = ""  # the other user who acts as this user; empty if nobody does

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def actor(self) -> str:
        """The name in the audit log."""
        return f"{self.holder} as {self.name}" if self.holder else self.name

    @property
    def operates(self) -> bool:
        """Whether the caller may read the resources of all users."""
        return _ROLE_RANKS[self.user.role] >= _ROLE_RANKS[Role.OPERATOR]

    @property
    def oversees_tasks(self) -> bool:
        """Whether the caller may read and change the tasks of all users."""
        return self.has_right(Right.MANAGE_TASKS)

    @property
    def administers(self) -> bool:
        """Whether the caller may read all users and tokens."""
        return self.user.role is Role.ADMIN

    def has_right(self, right: str) -> bool:
        """Say whether the caller has a right. Operators and admins have all rights except those over accounts."""
        return right in self.user.rights or (self.operates and right not in _ACCOUNT_RIGHTS)

    def arguments(self, right: Right) -> tuple[str, ...]:
        """Return the arguments of the caller's rights of one kind: `4` for the right `ports:4`."""
        prefix = f"{right}:"
        return tuple(r.removeprefix(prefix) for r in self.user.rights if r.startswith(prefix))


def limit_to_scope(user: User, scope: TokenScope) -> User:
    """Return the user with the permissions of a token. A dev container gets the role USER without management rights."""
    if scope is not TokenScope.CONTAINER:
        return user
    rights = tuple(right for right in user.rights if right not in _MANAGEMENT_RIGHTS)
    return replace(user, role=Role.USER, rights=rights)


def require_permission(
    identity: Identity, scope: TokenScope, role: Role, call: str, right: Right | None = None
) -> None:
    """Raise Denied unless the scope, and the role or the right, permit `call`."""
    if _SCOPE_RANKS[identity.scope] < _SCOPE_RANKS[scope]:
        raise Denied(
            f"{call} needs a token of scope {scope}; this one has scope {identity.scope}",
            reason="SCOPE_TOO_SMALL",
        )
    if _ROLE_RANKS[identity.user.role] < _ROLE_RANKS[role] and right not in identity.user.rights:
        alternative = f" or the right {right}" if right else ""
        raise Denied(
            f"{call} is for the role {role}{alternative}; {identity.name} is {identity.user.role}",
            reason="ROLE_TOO_LOW",
        )


def can_see_task(identity: Identity, task: Task, owner_groups: tuple[str, ...]) -> bool:
    """Say whether the caller owns a task, oversees all tasks, or is in a group with which the task is shared."""
    if identity.oversees_tasks or task.user == identity.name:
        return True
    shared = task.spec.options.shared_in_group
    return shared and not set(owner_groups).isdisjoint(identity.user.groups)


def require_may_modify(identity: Identity, task: Task) -> None:
    """Raise Denied unless the caller may change a task that is visible to them."""
    if task.user == identity.name:
        return
    if not identity.oversees_tasks:
        raise Denied(
            f"task {task.id} belongs to {task.user}; only its owner and operators may change it"
        )
    require_reach(identity, task.user, f"task {task.id}")


def require_reach(identity: Identity, owner: str, resource: str) -> None:
    """Raise Denied if a token without scope ALL would change a resource of another user."""
    if owner != identity.name and identity.scope is not TokenScope.ALL:
        raise Denied(
            f"{resource} belongs to {owner}; a token of scope {identity.scope} changes own things only",
            reason="SCOPE_TOO_SMALL",
        )


def require_runs_as_self(identity: Identity, spec: TaskSpec, action: str) -> None:
    """Raise Denied if another user acts as the user in a dev container, because it contains a token of the user."""
    if identity.holder and spec.task_type is TaskType.JUPYTER:
        raise Denied(f"{action} is for {identity.name} alone, not for {identity.actor}")


def require_self_or_admin(identity: Identity, user: str, resource: str) -> None:
    """Raise Denied unless `user` is the caller or the caller is an admin."""
    if user != identity.name and not identity.administers:
        raise Denied(f"{resource} of {user} are for {user} and admins only", reason="ROLE_TOO_LOW")


def lost_permissions(before: Identity, now: Identity) -> str:
    """Return the role, rights and groups that the caller has lost. Empty if there are none."""
    old, new = before.user, now.user
    if _ROLE_RANKS[new.role] < _ROLE_RANKS[old.role]:
        return f"the role {old.role}"
    lost = [*set(old.rights) - set(new.rights), *set(old.groups) - set(new.groups)]
    return ", ".join(sorted(lost))


def find_excess(other: User, identity: Identity) -> str:
    """Return the permissions of another account that the caller lacks. Empty if there are none.

    Callers may not change such accounts. Otherwise they could give themselves more permissions.
    """
    if identity.administers:
        return ""
    if _ROLE_RANKS[other.role] > _ROLE_RANKS[Role.USER]:
        return f"the role {other.role}"
    return ", ".join(right for right in other.rights if right not in identity.user.rights)


def find_ungrantable(
    before: User, user: User, used_uids: Collection[int], identity: Identity
) -> str:
    """Return the part of a change of an account that the caller may not make. Empty if there is none.

    `used_uids` are the uids of other accounts.
    """
    if identity.administers:
        return ""
    groups = sorted({*user.groups} - {*before.groups} - {*identity.user.groups})
    if groups:
        return f"the user group {', '.join(groups)}"
    if user.uid != before.uid and (before.uid or user.uid in used_uids):
        return f"the uid {user.uid}"
    return ""
