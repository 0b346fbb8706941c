"""Tables of records. Each has one column for each field of its dataclass in domain, in the same order."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from hai_backend.store.tables.base import Base, table


class GrantRow(Base):
    __tablename__ = "grants"
    subject: Mapped[str] = mapped_column(primary_key=True)
    subject_is_group: Mapped[bool] = mapped_column(primary_key=True)
    right_name: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[float | None]


class ShareRow(Base):
    __tablename__ = "shares"
    user_group: Mapped[str] = mapped_column(primary_key=True)
    group_name: Mapped[str] = mapped_column(primary_key=True)
    guaranteed: Mapped[int]
    weight: Mapped[int]
    at_most: Mapped[int | None]  # the field `limit`, which is a keyword of SQL


class MessageRow(Base):
    __tablename__ = "messages"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    subject: Mapped[str]
    subject_is_group: Mapped[bool]
    text: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[float]
    expires_at: Mapped[float | None]


class ImageRow(Base):
    __tablename__ = "images"
    name: Mapped[str] = mapped_column(primary_key=True)
    reference: Mapped[str]
    user_groups: Mapped[str]  # JSON
    is_default: Mapped[bool]
    description: Mapped[str]


class RegistryRow(Base):
    __tablename__ = "registries"
    prefix: Mapped[str] = mapped_column(primary_key=True)
    username: Mapped[str]
    password: Mapped[str]
    plain_http: Mapped[bool]
    pull_secret: Mapped[str]


class MountRuleRow(Base):
    __tablename__ = "mount_rules"
    owners: Mapped[str]  # JSON
    mount_path: Mapped[str]
    source: Mapped[str]
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    action: Mapped[str]
    kind: Mapped[str]
    host_type: Mapped[str]
    attributes: Mapped[str]  # JSON
    conditions: Mapped[str]  # JSON
    read_only: Mapped[bool]
    mount_code: Mapped[int]


class PortRow(Base):
    __tablename__ = "ports"
    node_port: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user_name: Mapped[str]
    task_name: Mapped[str]
    service: Mapped[str]
    created_at: Mapped[float]


class ArtifactRow(Base):
    __tablename__ = "artifacts"
    space: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    owner_name: Mapped[str]
    type: Mapped[str]
    location: Mapped[str]
    description: Mapped[str]
    created_at: Mapped[float]
    updated_at: Mapped[float]


class TaskArtifactRow(Base):
    __tablename__ = "task_artifacts"
    task_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    direction: Mapped[str] = mapped_column(primary_key=True)
    space: Mapped[str]
    name: Mapped[str]
    version: Mapped[str]


class DatasetRow(Base):
    __tablename__ = "datasets"
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str]
    owner_name: Mapped[str]
    user_group: Mapped[str]
    visibility: Mapped[str]
    size_bytes: Mapped[int]
    description: Mapped[str]
    created_at: Mapped[float]


class EnvironmentRow(Base):
    __tablename__ = "environments"
    owner_name: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    message: Mapped[str]
    visibility: Mapped[str]
    user_group: Mapped[str]
    parent: Mapped[str]
    python_version: Mapped[str]
    lock_hash: Mapped[str]
    layer: Mapped[str]
    packages: Mapped[int]
    size_bytes: Mapped[int]
    description: Mapped[str]
    deprecated: Mapped[str]
    created_at: Mapped[float]
    updated_at: Mapped[float]


class WebhookRow(Base):
    __tablename__ = "webhooks"
    owner_name: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str]
    news: Mapped[str]  # JSON
    format: Mapped[str]
    tag: Mapped[str]
    secret: Mapped[str]
    created_at: Mapped[float]


class NoticeRow(Base):
    __tablename__ = "notices"
    owner_name: Mapped[str] = mapped_column(primary_key=True)
    webhook: Mapped[str] = mapped_column(primary_key=True)
    task_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    run: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    news: Mapped[str] = mapped_column(primary_key=True)
    time: Mapped[float]
    facts: Mapped[str]  # JSON


GRANTS = table(GrantRow)
SHARES = table(ShareRow)
MESSAGES = table(MessageRow)
IMAGES = table(ImageRow)
REGISTRIES = table(RegistryRow)
MOUNT_RULES = table(MountRuleRow)
PORTS = table(PortRow)
ARTIFACTS = table(ArtifactRow)
TASK_ARTIFACTS = table(TaskArtifactRow)
DATASETS = table(DatasetRow)
ENVIRONMENTS = table(EnvironmentRow)
WEBHOOKS = table(WebhookRow)
NOTICES = table(NoticeRow)
