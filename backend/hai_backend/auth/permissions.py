"""What a caller may do: pure questions over values. The table of calls is services/methods.py."""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.domain.errors import Denied
from hai_backend.domain.task import Task
from hai_backend.domain.user import Role, TokenScope, User

_ROLES = {Role.USER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
_SCOPES = {TokenScope.READ: 0, TokenScope.SUBMIT: 1, TokenScope.ALL: 2}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, and how far their token reaches."""

    user: User
    scope: TokenScope = TokenScope.ALL
    token_id: int = 0

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def operates(self) -> bool:
        """May look at everybody's things."""
        return _ROLES[self.user.role] >= _ROLES[Role.OPERATOR]

    @property
    def administers(self) -> bool:
        """May look at users and tokens of others."""
        return self.user.role is Role.ADMIN

    def has_right(self, right: str) -> bool:
        """A named right; operators and admins have all of them."""
        return self.operates or right in self.user.rights


def admit(identity: Identity, scope: TokenScope, role: Role, call: str) -> None:
    """Raise Denied unless token and role suffice for `call`."""
    if _SCOPES[identity.scope] < _SCOPES[scope]:
        raise Denied(
            f"{call} needs a token of scope {scope}; this one has scope {identity.scope}",
            reason="SCOPE_TOO_SMALL",
        )
    if _ROLES[identity.user.role] < _ROLES[role]:
        raise Denied(
            f"{call} is for the role {role}; {identity.name} is {identity.user.role}",
            reason="ROLE_TOO_LOW",
        )


def sees(identity: Identity, task: Task, owner_groups: tuple[str, ...]) -> bool:
    """One's own tasks, those shared in a common group, and for operators all."""
    if identity.operates or task.user == identity.name:
        return True
    shared = task.spec.options.shared_in_group
    return shared and not set(owner_groups).isdisjoint(identity.user.groups)


def require_steering(identity: Identity, task: Task) -> None:
    """Raise Denied unless the caller may change a task that they see."""
    if task.user == identity.name:
        return
    if not identity.operates:
        raise Denied(
            f"task {task.id} belongs to {task.user}; only its owner and operators may change it"
        )
    if identity.scope is not TokenScope.ALL:
        raise Denied(
            f"task {task.id} belongs to {task.user}; a token of scope {identity.scope} changes own tasks only",
            reason="SCOPE_TOO_SMALL",
        )


def require_self_or_admin(identity: Identity, user: str, what: str) -> None:
    """Raise Denied unless `user` is the caller or the caller is an admin."""
    if user != identity.name and not identity.administers:
        raise Denied(f"{what} of {user} are for {user} and admins only", reason="ROLE_TOO_LOW")
