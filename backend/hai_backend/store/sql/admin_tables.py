"""Reads and writes nodes, node groups, users, quotas and tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import Connection, and_, delete, select

from hai_backend.domain.accounts.user import Quota, Token, User
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.store.sql import convert_admin as convert
from hai_backend.store.sql.transaction import Transaction
from hai_backend.store.tables.accounts import MEMBERS, QUOTAS, TOKENS, USERS
from hai_backend.store.tables.cluster import GROUPS, NODES


def nodes(connection: Connection) -> list[Node]:
    return [
        convert.node_from_row(r) for r in connection.execute(select(NODES).order_by(NODES.c.name))
    ]


def save_nodes(transaction: Transaction, nodes: Collection[Node]) -> None:
    version = transaction.next_version()
    transaction.put(NODES, [convert.node_to_row(node, version) for node in nodes])


def delete_nodes(transaction: Transaction, names: Collection[str]) -> None:
    """Delete nodes. Unknown names are ignored."""
    for name in names:
        if transaction.delete(delete(NODES).where(NODES.c.name == name)):
            transaction.next_version()


def groups(connection: Connection) -> list[Group]:
    return [
        convert.group_from_row(r)
        for r in connection.execute(select(GROUPS).order_by(GROUPS.c.name))
    ]


def save_group(transaction: Transaction, group: Group) -> None:
    transaction.put(GROUPS, [convert.group_to_row(group)])


def users(connection: Connection) -> list[User]:
    return [
        convert.user_from_row(r) for r in connection.execute(select(USERS).order_by(USERS.c.name))
    ]


def save_user(transaction: Transaction, user: User) -> None:
    """Insert or replace a user and the memberships in user groups."""
    transaction.put(USERS, [convert.user_to_row(user)])
    transaction.delete(delete(MEMBERS).where(MEMBERS.c.user_name == user.name))
    transaction.put(MEMBERS, [(group, user.name) for group in sorted(set(user.groups))])


def quotas(connection: Connection) -> list[Quota]:
    rows = connection.execute(select(QUOTAS).order_by(*QUOTAS.primary_key))
    return [convert.quota_from_row(row) for row in rows]


def save_quota(transaction: Transaction, quota: Quota) -> None:
    transaction.put(QUOTAS, [convert.quota_to_row(quota)])


def delete_quota(
    transaction: Transaction, subject: str, is_group: bool, group: str, priority: Priority
) -> bool:
    """Delete a quota. Return whether it existed."""
    key = and_(
        QUOTAS.c.subject == subject,
        QUOTAS.c.subject_is_group == is_group,
        QUOTAS.c.group_name == group,
        QUOTAS.c.priority == int(priority),
    )
    return transaction.delete(delete(QUOTAS).where(key)) > 0


def tokens(connection: Connection) -> list[Token]:
    return [
        convert.token_from_row(r) for r in connection.execute(select(TOKENS).order_by(TOKENS.c.id))
    ]


def create_token(transaction: Transaction, token: Token) -> Token:
    """Insert a token with a new id."""
    new = replace(token, id=transaction.next_token_id())
    transaction.put(TOKENS, [convert.token_to_row(new)])
    return new


def save_token(transaction: Transaction, token: Token) -> None:
    transaction.put(TOKENS, [convert.token_to_row(token)])


def delete_token(transaction: Transaction, token_id: int) -> bool:
    """Delete a token. Return whether it existed."""
    return transaction.delete(delete(TOKENS).where(TOKENS.c.id == token_id)) > 0
