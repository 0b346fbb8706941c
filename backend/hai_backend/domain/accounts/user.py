"""Users, tokens, quotas and shares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.priority import Priority

USER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
USER_RULE = "1 to 32 of a-z, 0-9, _ and -, beginning with a letter or digit"


class Role(StrEnum):
    USER = "USER"
    OPERATOR = "OPERATOR"
    ADMIN = "ADMIN"


class TokenScope(StrEnum):
    ALL = "ALL"
    READ = "READ"
    SUBMIT = "SUBMIT"
    CONTAINER = "CONTAINER"  # for the programs and users of a dev container


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: Role = Role.USER
    groups: tuple[str, ...] = ()
    active: bool = True
    rights: tuple[str, ...] = ()
    uid: int = 0
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Quota:
    """The nodes that a user, or each member of a user group, may use at once.

    Priority AUTO stands for all levels together.
    """

    subject: str
    subject_is_group: bool
    group: str
    priority: Priority
    nodes: int
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a node group that a user group has, in nodes. A user of several such groups counts for the first.

    `guaranteed` nodes are taken back from other groups when the group needs them. The nodes that are not guaranteed to
    any group are divided by `weight`. A group never uses more than `limit`. Users without a share, or whose group has
    used its share, run on nodes that other groups leave free.
    """

    user_group: str
    group: str
    guaranteed: int = 0
    weight: int = 0
    limit: int | None = None  # None means unlimited


@dataclass(frozen=True, slots=True)
class Token:
    """A credential. Only the SHA-256 of its secret is stored."""

    id: int
    user: str
    scope: TokenScope
    secret_sha256: str
    description: str = ""
    created_at: float = 0.0
    expires_at: float | None = None
    revoked: bool = False
    holder: str = ""  # who acts as `user` with this token; empty for the user
