"""Tables of users, their groups, quotas and tokens, and of audited calls."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from hai_backend.store.tables.base import Base, table


class UserRow(Base):
    __tablename__ = "users"
    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str]
    groups: Mapped[str]  # JSON, so that one row describes a user; queries by group use user_groups
    active: Mapped[bool]
    rights: Mapped[str]  # JSON
    uid: Mapped[int]
    created_at: Mapped[float]


class MemberRow(Base):
    __tablename__ = "user_groups"
    group_name: Mapped[str] = mapped_column(primary_key=True)
    user_name: Mapped[str] = mapped_column(primary_key=True)


class QuotaRow(Base):
    __tablename__ = "quotas"
    subject: Mapped[str] = mapped_column(primary_key=True)
    subject_is_group: Mapped[bool] = mapped_column(primary_key=True)
    group_name: Mapped[str] = mapped_column(primary_key=True)
    priority: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    nodes: Mapped[int]
    expires_at: Mapped[float | None]


class TokenRow(Base):
    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user_name: Mapped[str]
    scope: Mapped[str]
    secret_sha256: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str]
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    revoked: Mapped[bool]
    # the holder who may use the token; empty means the user
    holder: Mapped[str] = mapped_column(server_default="")


class AuditEntry(Base):
    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[float]
    actor: Mapped[str]
    method: Mapped[str]
    resource: Mapped[str]
    what: Mapped[str]
    code: Mapped[str]


USERS = table(UserRow)
MEMBERS = table(MemberRow)
QUOTAS = table(QuotaRow)
TOKENS = table(TokenRow)
AUDIT = table(AuditEntry)

for _column in ("actor", "method", "resource", "time"):
    Index(f"audit_{_column}", AUDIT.c[_column], AUDIT.c.id)
