"""Domain values to rows and back, for nodes, users and the other small tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hai_backend.domain.accounts.user import Quota, Role, Token, TokenScope, User
from hai_backend.domain.node import Group, Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.store.base import AuditRow
from hai_backend.store.sql.convert import (
    Values,
    dump_labels,
    dump_names,
    free_text,
    load_labels,
    load_names,
)


def node_values(node: Node, version: int) -> Values:
    """The row of a node."""
    return (
        node.name,
        node.group,
        node.zone,
        node.state.value,
        node.cordoned,
        node.gpus,
        node.gpus_simulated,
        node.cpus,
        node.memory_bytes,
        dump_names(node.topology),
        free_text(node.reason),
        node.updated_at,
        version,
        dump_labels(node.labels),
    )


def node_of(row: Sequence[Any]) -> Node:
    """The node of a row."""
    name, group, zone, state, cordoned, gpus, simulated, cpus, memory, topology, *rest = row
    reason, updated_at, _, labels = rest
    return Node(
        name=name,
        group=group,
        zone=zone,
        state=NodeState(state),
        cordoned=bool(cordoned),
        gpus=gpus,
        gpus_simulated=bool(simulated),
        cpus=cpus,
        memory_bytes=memory,
        topology=load_names(topology),
        reason=reason,
        updated_at=updated_at,
        labels=load_labels(labels),
    )


def group_values(group: Group) -> Values:
    """The row of a node group."""
    return (group.name, group.packed, group.policy)


def group_of(row: Sequence[Any]) -> Group:
    """The node group of a row."""
    name, packed, policy = row
    return Group(name, bool(packed), policy)


def user_values(user: User) -> Values:
    """The row of a user."""
    groups, rights = dump_names(user.groups), dump_names(user.rights)
    return (user.name, user.role.value, groups, user.active, rights, user.uid, user.created_at)


def user_of(row: Sequence[Any]) -> User:
    """The user of a row."""
    name, role, groups, active, rights, uid, created_at = row
    return User(
        name, Role(role), load_names(groups), bool(active), load_names(rights), uid, created_at
    )


def quota_values(quota: Quota) -> Values:
    """The row of a quota."""
    key = (quota.subject, quota.subject_is_group, quota.group, int(quota.priority))
    return (*key, quota.nodes, quota.expires_at)


def quota_of(row: Sequence[Any]) -> Quota:
    """The quota of a row."""
    subject, is_group, group, priority, nodes, expires_at = row
    return Quota(subject, bool(is_group), group, Priority(priority), nodes, expires_at)


def token_values(token: Token) -> Values:
    """The row of a token."""
    return (
        token.id,
        token.user,
        token.scope.value,
        token.secret_sha256,
        free_text(token.description),
        token.created_at,
        token.expires_at,
        token.revoked,
        token.holder,
    )


def token_of(row: Sequence[Any]) -> Token:
    """The token of a row."""
    token_id, user, scope, sha256, description, created_at, expires_at, revoked, holder = row
    return Token(
        token_id,
        user,
        TokenScope(scope),
        sha256,
        description,
        created_at,
        expires_at,
        bool(revoked),
        holder,
    )


def audit_values(row: AuditRow) -> Values:
    """The row of an audited call, without the id that the database gives."""
    return (
        row.time,
        row.actor,
        row.method,
        free_text(row.resource),
        free_text(row.what),
        row.code,
    )


def audit_of(row: Sequence[Any]) -> AuditRow:
    """The audited call of a row."""
    _, *rest = row
    return AuditRow(*rest)
