"""What a caller may do. Pure. The table of calls is api/server/methods.py."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from hai_backend.domain.accounts.right import Right
from hai_backend.domain.accounts.user import Role, TokenScope, User
from hai_backend.domain.errors import Denied
from hai_backend.domain.spec import TaskSpec, TaskType
from hai_backend.domain.task import Task

_ROLES = {Role.USER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
_OVER_ACCOUNTS = frozenset({Right.MANAGE_USERS, Right.MANAGE_QUOTAS, Right.MANAGE_TOKENS})
_OVER_OTHERS = _OVER_ACCOUNTS | {
    Right.MANAGE_TASKS,
    Right.MANAGE_NODES,
    Right.MANAGE_STORAGE,
    Right.MANAGE_IMAGES,
}
_SCOPES = {
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
    holder: str = ""  # who acts as the user; empty: the user

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def actor(self) -> str:
        """The name for the audit log."""
        return f"{self.holder} as {self.name}" if self.holder else self.name

    @property
    def operates(self) -> bool:
        """May read the resources of all users."""
        return _ROLES[self.user.role] >= _ROLES[Role.OPERATOR]

    @property
    def oversees_tasks(self) -> bool:
        """May read and change the tasks of all users."""
        return self.has_right(Right.MANAGE_TASKS)

    @property
    def administers(self) -> bool:
        """May read all users and tokens."""
        return self.user.role is Role.ADMIN

    def has_right(self, right: str) -> bool:
        """Whether the caller has a right. Operators and admins have all rights but those over accounts."""
        return right in self.user.rights or (self.operates and right not in _OVER_ACCOUNTS)

    def arguments(self, right: Right) -> tuple[str, ...]:
        """The arguments of the caller's rights of one kind: `4` for `ports:4`."""
        begin = f"{right}:"
        return tuple(r.removeprefix(begin) for r in self.user.rights if r.startswith(begin))


def within(scope: TokenScope, user: User) -> User:
    """The user as limited by a token: with that of a dev container, the role USER without rights over others."""
    if scope is not TokenScope.CONTAINER:
        return user
    rights = tuple(right for right in user.rights if right not in _OVER_OTHERS)
    return replace(user, role=Role.USER, rights=rights)


def admit(
    identity: Identity, scope: TokenScope, role: Role, call: str, right: Right | None = None
) -> None:
    """Raise Denied unless the scope, and the role or the right, permit `call`."""
    if _SCOPES[identity.scope] < _SCOPES[scope]:
        raise Denied(
            f"{call} needs a token of scope {scope}; this one has scope {identity.scope}",
            reason="SCOPE_TOO_SMALL",
        )
    if _ROLES[identity.user.role] < _ROLES[role] and right not in identity.user.rights:
        instead = f" or the right {right}" if right else ""
        raise Denied(
            f"{call} is for the role {role}{instead}; {identity.name} is {identity.user.role}",
            reason="ROLE_TOO_LOW",
        )


def sees(identity: Identity, task: Task, owner_groups: tuple[str, ...]) -> bool:
    """Whether a task is the caller's or shared with a group of the caller, or the caller oversees all tasks."""
    if identity.oversees_tasks or task.user == identity.name:
        return True
    shared = task.spec.options.shared_in_group
    return shared and not set(owner_groups).isdisjoint(identity.user.groups)


def require_steering(identity: Identity, task: Task) -> None:
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


def require_oneself(identity: Identity, spec: TaskSpec, action: str) -> None:
    """Raise Denied if somebody acts as the user in a dev container, which holds the user's own token."""
    if identity.holder and spec.task_type is TaskType.JUPYTER:
        raise Denied(f"{action} is for {identity.name} alone, not for {identity.actor}")


def require_self_or_admin(identity: Identity, user: str, resource: str) -> None:
    """Raise Denied unless `user` is the caller or the caller is an admin."""
    if user != identity.name and not identity.administers:
        raise Denied(f"{resource} of {user} are for {user} and admins only", reason="ROLE_TOO_LOW")


def lost_permissions(before: Identity, now: Identity) -> str:
    """The role, rights and groups that the caller has lost; empty: none."""
    old, new = before.user, now.user
    if _ROLES[new.role] < _ROLES[old.role]:
        return f"the role {old.role}"
    missing = [*set(old.rights) - set(new.rights), *set(old.groups) - set(new.groups)]
    return ", ".join(sorted(missing))


def exceeds(other: User, identity: Identity) -> str:
    """What `other` may do and the caller may not; empty: nothing. So no right lets its holder gain more."""
    if identity.administers:
        return ""
    if _ROLES[other.role] > _ROLES[Role.USER]:
        return f"the role {other.role}"
    return ", ".join(right for right in other.rights if right not in identity.user.rights)


def beyond(before: User, user: User, used_uids: Collection[int], identity: Identity) -> str:
    """What of a change of an account the caller may not grant; empty: nothing. `used_uids`: those of other accounts."""
    if identity.administers:
        return ""
    groups = sorted({*user.groups} - {*before.groups} - {*identity.user.groups})
    if groups:
        return f"the user group {', '.join(groups)}"
    if user.uid != before.uid and (before.uid or user.uid in used_uids):
        return f"the uid {user.uid}"
    return ""
