"""Converts users, rights, quotas, shares and tokens to messages, and validates those of requests."""

from __future__ import annotations

from hai.v1 import user_pb2 as pb
from hai.v1.message_service_pb2 import Message
from hai.v1.user_service_pb2 import CreateTokenRequest
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import END_OF_TIME, from_timestamp, to_timestamp
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.tasks.validation.validate import read_level
from hai_backend.domain.accounts import right as right_rules
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import (
    USER_NAME,
    USER_RULE,
    Quota,
    Role,
    Share,
    Token,
    TokenScope,
    User,
)

_ROLES = {r: pb.Role.Value(f"ROLE_{r.name}") for r in Role}
_ROLES_BY_NUMBER: dict[int, Role] = {number: role for role, number in _ROLES.items()}
_SCOPES = {s: pb.TokenScope.Value(f"TOKEN_SCOPE_{s.name}") for s in TokenScope}
_SCOPES_BY_NUMBER: dict[int, TokenScope] = {number: scope for scope, number in _SCOPES.items()}
NAME_RULE = "at most 63 letters, digits, `.`, `_`, `-`, beginning with a letter or digit"
_MAX_NODES = 1_000_000
_MAX_WEIGHT = 10_000


def user_to_proto(user: User) -> pb.User:
    return pb.User(
        name=user.name,
        role=_ROLES[user.role],
        groups=user.groups,
        active=user.active,
        rights=user.rights,
        uid=user.uid,
        create_time=to_timestamp(user.created_at or None),
    )


def user_from_proto(message: pb.User, now: float, *, new: bool) -> User:
    """Return a validated user. Raises Invalid with every violation."""
    violations = FieldViolations()
    if new:  # the first admin may have an invalid name: that of the account of the server
        violations.check_pattern("user.name", message.name, USER_NAME, USER_RULE)
    if message.role not in _ROLES_BY_NUMBER:
        violations.add("user.role", "must be USER, OPERATOR or ADMIN")
    for i, group in enumerate(
        violations.check_count("user.groups", message.groups, limits.USER_GROUPS)
    ):
        violations.check_pattern(f"user.groups[{i}]", group, NAME, NAME_RULE)
    for i, right in enumerate(violations.check_count("user.rights", message.rights, limits.RIGHTS)):
        _check_right(f"user.rights[{i}]", right, violations)
    violations.check_range("user.uid", message.uid, 0, 2**31 - 1)
    violations.raise_if_any()
    return User(
        name=message.name,
        role=_ROLES_BY_NUMBER[message.role],
        groups=tuple(dict.fromkeys(message.groups)),
        active=message.active,
        rights=tuple(dict.fromkeys(message.rights)),
        uid=message.uid,
        created_at=now,
    )


def _check_right(field: str, right: str, violations: FieldViolations) -> None:
    if problem := right_rules.right_problem(right):
        violations.add(field, problem, "NO_SUCH_RIGHT")


def grant_to_proto(grant: Grant) -> pb.Grant:
    return pb.Grant(
        subject=grant.subject,
        subject_is_group=grant.subject_is_group,
        right=grant.right,
        expire_time=to_timestamp(grant.expires_at),
    )


def grant_from_proto(message: pb.Grant, now: float) -> Grant:
    """Return a validated grant. Raises Invalid with every violation."""
    violations = FieldViolations()
    violations.check_pattern("grant.subject", message.subject, NAME, NAME_RULE)
    _check_right("grant.right", message.right, violations)
    expires_at = read_expiry("grant.expire_time", message, now, violations)
    violations.raise_if_any()
    return Grant(message.subject, message.subject_is_group, message.right, expires_at)


def quota_to_proto(quota: Quota, used: int) -> pb.Quota:
    """Convert a quota. `used` is the number of nodes in use."""
    return pb.Quota(
        subject=quota.subject,
        subject_is_group=quota.subject_is_group,
        group=quota.group,
        priority=quota.priority,
        nodes=quota.nodes,
        expire_time=to_timestamp(quota.expires_at),
        used=used,
    )


def quota_from_proto(message: pb.Quota, now: float) -> Quota:
    """Return a validated quota. Raises Invalid with every violation."""
    violations = FieldViolations()
    violations.check_pattern("quota.subject", message.subject, NAME, NAME_RULE)
    violations.check_pattern("quota.group", message.group, NAME, NAME_RULE)
    priority = read_level("quota.priority", message.priority, violations)
    violations.check_range("quota.nodes", message.nodes, 0, _MAX_NODES)
    expires_at = read_expiry("quota.expire_time", message, now, violations)
    violations.raise_if_any()
    return Quota(
        message.subject,
        message.subject_is_group,
        message.group,
        priority,
        message.nodes,
        expires_at,
    )


def share_to_proto(share: Share, held: int) -> pb.Share:
    """Convert a share. `held` is the number of nodes that its users hold."""
    return pb.Share(
        user_group=share.user_group,
        group=share.group,
        guaranteed=share.guaranteed,
        weight=share.weight,
        limit=share.limit,
        held=held,
    )


def share_from_proto(message: pb.Share, violations: FieldViolations) -> Share:
    """Return a share with validated numbers and user group. The caller must check its node group."""
    violations.check_pattern("share.user_group", message.user_group, NAME, NAME_RULE)
    guaranteed = violations.check_range("share.guaranteed", message.guaranteed, 0, _MAX_NODES)
    weight = violations.check_range("share.weight", message.weight, 0, _MAX_WEIGHT)
    limit = (
        violations.check_range("share.limit", message.limit, 0, _MAX_NODES)
        if message.HasField("limit")
        else None
    )
    if limit is not None and 0 <= limit < guaranteed:
        violations.add(
            "share.limit",
            f"is {limit}, less than the {guaranteed} that are guaranteed; guarantee less, or allow more",
        )
    return Share(message.user_group, message.group, guaranteed, weight, limit)


def read_expiry(
    field: str,
    message: pb.Quota | pb.Grant | CreateTokenRequest | Message,
    now: float,
    violations: FieldViolations,
) -> float | None:
    """Return the time in `expire_time`, which must lie in the future. Return None if it is unset."""
    if not message.HasField("expire_time"):
        return None
    expires_at = from_timestamp(message.expire_time)
    if expires_at <= now:
        violations.add(field, "lies in the past by the server's clock; check yours")
    if expires_at > END_OF_TIME:
        violations.add(field, "lies after the year 9999; leave it out for no end")
    return expires_at


def scope_from_proto(number: int, violations: FieldViolations) -> TokenScope:
    """Return the scope of a new token, which is required."""
    scope = _SCOPES_BY_NUMBER.get(number, TokenScope.CONTAINER)
    if scope is TokenScope.CONTAINER:
        violations.add("scope", "must be ALL, READ or SUBMIT")
    return scope


def token_to_proto(token: Token, secret: str = "") -> pb.Token:
    """Convert a token. Only the response that creates it contains the secret."""
    return pb.Token(
        id=token.id,
        user=token.user,
        scope=_SCOPES[token.scope],
        description=token.description,
        create_time=to_timestamp(token.created_at),
        expire_time=to_timestamp(token.expires_at),
        revoked=token.revoked,
        secret=secret,
        holder=token.holder,
    )
