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
    CONTAINER = "CONTAINER"  # for the programs of a dev container, and everybody who can enter it


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
    """Nodes that a user (or each member of a user group) may use at once; priority AUTO: at all levels together."""

    subject: str
    subject_is_group: bool
    group: str
    priority: Priority
    nodes: int
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A user group's part of a node group, in nodes. A user of several such groups counts for the first.

    `guaranteed` nodes are taken back from others when the group needs them. Nodes that nobody is guaranteed are divided
    by `weight`. A group never uses more than `limit`. Users without a share, or whose share is used up, run on nodes
    that others leave free.
    """

    user_group: str
    group: str
    guaranteed: int = 0
    weight: int = 0
    limit: int | None = None  # None: none


@dataclass(frozen=True, slots=True)
class Token:
    """A credential; only the SHA-256 of its secret is ever kept."""

    id: int
    user: str
    scope: TokenScope
    secret_sha256: str
    description: str = ""
    created_at: float = 0.0
    expires_at: float | None = None
    revoked: bool = False
    holder: str = ""  # who got it to act as `user`; empty: the user
