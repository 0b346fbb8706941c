"""Converts nodes, groups, users, quotas, tokens and audited calls to rows and back; see convert.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hai_backend.domain.accounts.user import Quota, Role, Token, TokenScope, User
from hai_backend.domain.node import Group, Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.store.base import AuditRow
from hai_backend.store.sql.convert import (
    RowValues,
    dump_labels,
    dump_names,
    load_labels,
    load_names,
    sanitize,
)


def node_to_row(node: Node, version: int) -> RowValues:
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
        sanitize(node.reason),
        node.updated_at,
        version,
        dump_labels(node.labels),
    )


def node_from_row(row: Sequence[Any]) -> Node:
    name, group, zone, state, cordoned, gpus, simulated, cpus, memory, topology, *others = row
    reason, updated_at, _, labels = others
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


def group_to_row(group: Group) -> RowValues:
    return (group.name, group.packed, group.policy)


def group_from_row(row: Sequence[Any]) -> Group:
    name, packed, policy = row
    return Group(name, bool(packed), policy)


def user_to_row(user: User) -> RowValues:
    groups, rights = dump_names(user.groups), dump_names(user.rights)
    return (user.name, user.role.value, groups, user.active, rights, user.uid, user.created_at)


def user_from_row(row: Sequence[Any]) -> User:
    name, role, groups, active, rights, uid, created_at = row
    return User(
        name, Role(role), load_names(groups), bool(active), load_names(rights), uid, created_at
    )


def quota_to_row(quota: Quota) -> RowValues:
    key = (quota.subject, quota.subject_is_group, quota.group, int(quota.priority))
    return (*key, quota.nodes, quota.expires_at)


def quota_from_row(row: Sequence[Any]) -> Quota:
    subject, is_group, group, priority, nodes, expires_at = row
    return Quota(subject, bool(is_group), group, Priority(priority), nodes, expires_at)


def token_to_row(token: Token) -> RowValues:
    return (
        token.id,
        token.user,
        token.scope.value,
        token.secret_sha256,
        sanitize(token.description),
        token.created_at,
        token.expires_at,
        token.revoked,
        token.holder,
    )


def token_from_row(row: Sequence[Any]) -> Token:
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


def audit_to_row(row: AuditRow) -> RowValues:
    """Return the row without an id, because the database assigns the id."""
    return (
        row.time,
        row.actor,
        row.method,
        sanitize(row.resource),
        sanitize(row.what),
        row.code,
    )


def audit_from_row(row: Sequence[Any]) -> AuditRow:
    _, *values = row
    return AuditRow(*values)
