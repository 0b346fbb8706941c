"""What a caller may do: pure questions over values. The table of calls is api/server/methods.py."""

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
    """Who calls, and how far their token reaches."""

    user: User
    scope: TokenScope = TokenScope.ALL
    token_id: int = 0
    holder: str = ""  # who acts as the user; empty: the user

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def actor(self) -> str:
        """Who does it, for the audit."""
        return f"{self.holder} as {self.name}" if self.holder else self.name

    @property
    def operates(self) -> bool:
        """May look at everybody's things."""
        return _ROLES[self.user.role] >= _ROLES[Role.OPERATOR]

    @property
    def oversees_tasks(self) -> bool:
        """May see and steer everybody's tasks."""
        return self.has_right(Right.MANAGE_TASKS)

    @property
    def administers(self) -> bool:
        """May look at users and tokens of others."""
        return self.user.role is Role.ADMIN

    def has_right(self, right: str) -> bool:
        """A named right; operators and admins have all of them but those over accounts."""
        return right in self.user.rights or (self.operates and right not in _OVER_ACCOUNTS)

    def arguments(self, right: Right) -> tuple[str, ...]:
        """What the caller's rights of one kind are about: of `ports:4` it is 4."""
        begin = f"{right}:"
        return tuple(r.removeprefix(begin) for r in self.user.rights if r.startswith(begin))


def within(scope: TokenScope, user: User) -> User:
    """What a user is by a token: by that of a dev container never more than a user, without rights over others."""
    if scope is not TokenScope.CONTAINER:
        return user
    rights = tuple(right for right in user.rights if right not in _OVER_OTHERS)
    return replace(user, role=Role.USER, rights=rights)


def admit(
    identity: Identity, scope: TokenScope, role: Role, call: str, right: Right | None = None
) -> None:
    """Raise Denied unless the token, and the role or the right, suffice for `call`."""
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
    """One's own tasks, those shared in a common group, and for who oversees tasks all."""
    if identity.oversees_tasks or task.user == identity.name:
        return True
    shared = task.spec.options.shared_in_group
    return shared and not set(owner_groups).isdisjoint(identity.user.groups)


def require_steering(identity: Identity, task: Task) -> None:
    """Raise Denied unless the caller may change a task that they see."""
    if task.user == identity.name:
        return
    if not identity.oversees_tasks:
        raise Denied(
            f"task {task.id} belongs to {task.user}; only its owner and operators may change it"
        )
    require_reach(identity, task.user, f"task {task.id}")


def require_reach(identity: Identity, owner: str, what: str) -> None:
    """Raise Denied when a token that is for one's own things would change somebody else's."""
    if owner != identity.name and identity.scope is not TokenScope.ALL:
        raise Denied(
            f"{what} belongs to {owner}; a token of scope {identity.scope} changes own things only",
            reason="SCOPE_TOO_SMALL",
        )


def require_oneself(identity: Identity, spec: TaskSpec, what: str) -> None:
    """Raise Denied when somebody acts as the user in a dev container: a token of the user lies there, of no holder."""
    if identity.holder and spec.task_type is TaskType.JUPYTER:
        raise Denied(f"{what} is for {identity.name} alone, not for {identity.actor}")


def require_self_or_admin(identity: Identity, user: str, what: str) -> None:
    """Raise Denied unless `user` is the caller or the caller is an admin."""
    if user != identity.name and not identity.administers:
        raise Denied(f"{what} of {user} are for {user} and admins only", reason="ROLE_TOO_LOW")


def lost(before: Identity, now: Identity) -> str:
    """What the caller could do, or belonged to, before; empty: nothing."""
    old, new = before.user, now.user
    if _ROLES[new.role] < _ROLES[old.role]:
        return f"the role {old.role}"
    gone = [*set(old.rights) - set(new.rights), *set(old.groups) - set(new.groups)]
    return ", ".join(sorted(gone))


def exceeds(other: User, identity: Identity) -> str:
    """What `other` could do that the caller cannot; empty: nothing. So no right lets its holder rise."""
    if identity.administers:
        return ""
    if _ROLES[other.role] > _ROLES[Role.USER]:
        return f"the role {other.role}"
    return ", ".join(right for right in other.rights if right not in identity.user.rights)


def beyond(before: User, user: User, taken: Collection[int], identity: Identity) -> str:
    """What of a change of an account is not the caller's to give; empty: nothing. `taken`: uids of other accounts."""
    if identity.administers:
        return ""
    groups = sorted({*user.groups} - {*before.groups} - {*identity.user.groups})
    if groups:
        return f"the user group {', '.join(groups)}"
    if user.uid != before.uid and (before.uid or user.uid in taken):
        return f"the uid {user.uid}"
    return ""
