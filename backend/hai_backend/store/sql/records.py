"""Reads and writes records. Each kind of record is a frozen dataclass with one table.

The table has one column for each field, in the same order. The code of this module is the same for all kinds. A new
kind needs a dataclass in domain, a class in tables/records.py and a line in TABLES.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, select

from hai_backend.domain.accounts.message import Message
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import Share
from hai_backend.domain.accounts.webhook import Notice, Webhook
from hai_backend.domain.catalog.artifact import Artifact, TaskArtifact
from hai_backend.domain.catalog.dataset import Dataset
from hai_backend.domain.catalog.image import Image, Registry
from hai_backend.domain.catalog.port import Port
from hai_backend.domain.environment import Environment
from hai_backend.domain.mounts.mount import MountRow
from hai_backend.store.sql.convert import RowValues, dump_names, load_names, replace_refused
from hai_backend.store.sql.transaction import Transaction
from hai_backend.store.tables.records import (
    ARTIFACTS,
    DATASETS,
    ENVIRONMENTS,
    GRANTS,
    IMAGES,
    MESSAGES,
    MOUNT_RULES,
    NOTICES,
    PORTS,
    REGISTRIES,
    SHARES,
    TASK_ARTIFACTS,
    WEBHOOKS,
)

Record = TypeVar("Record")

TABLES: dict[type[Any], Table] = {
    Artifact: ARTIFACTS,
    TaskArtifact: TASK_ARTIFACTS,
    Dataset: DATASETS,
    Environment: ENVIRONMENTS,
    Grant: GRANTS,
    Image: IMAGES,
    Message: MESSAGES,
    MountRow: MOUNT_RULES,
    Notice: NOTICES,
    Port: PORTS,
    Registry: REGISTRIES,
    Share: SHARES,
    Webhook: WEBHOOKS,
}

# Name and type of each field. They are read only once, because this takes longer than reading a row.
_FIELDS = {kind: tuple(get_type_hints(kind).items()) for kind in TABLES}


def key_of(record: object) -> RowValues:
    """Return the values of the record's primary key."""
    fields = zip(TABLES[type(record)].columns, _field_names(type(record)), strict=True)
    return tuple(getattr(record, name) for column, name in fields if column.primary_key)


def find_records(
    connection: Connection, kind: type[Record], equals: Mapping[str, object]
) -> list[Record]:
    table = TABLES[kind]
    query = select(table).where(*_conditions(kind, equals)).order_by(*table.primary_key)
    return [_from_row(kind, row) for row in connection.execute(query)]


def add_record(transaction: Transaction, record: object) -> bool:
    """Insert a record. Return False if there is a record with the same key."""
    query = select(TABLES[type(record)]).where(_has_key_of(record))
    if transaction.connection.execute(query).first() is not None:
        return False
    save_record(transaction, record)
    return True


def save_record(transaction: Transaction, record: object) -> None:
    transaction.put(TABLES[type(record)], [to_row(record)])


def delete_record(transaction: Transaction, record: object) -> bool:
    return transaction.delete(delete(TABLES[type(record)]).where(_has_key_of(record))) > 0


def delete_records(transaction: Transaction, kind: type[Any], equals: Mapping[str, object]) -> int:
    return transaction.delete(delete(TABLES[kind]).where(*_conditions(kind, equals)))


def to_row(record: object) -> RowValues:
    return tuple(_to_column(getattr(record, name)) for name in _field_names(type(record)))


def _from_row(kind: type[Record], row: Sequence[Any]) -> Record:
    values = zip(_FIELDS[kind], row, strict=True)
    return kind(**{name: _from_column(field_type, value) for (name, field_type), value in values})


def _has_key_of(record: object) -> ColumnElement[bool]:
    columns = [c for c in TABLES[type(record)].columns if c.primary_key]
    return and_(*(c == _to_column(v) for c, v in zip(columns, key_of(record), strict=True)))


def _conditions(kind: type[Any], equals: Mapping[str, object]) -> list[ColumnElement[bool]]:
    columns = dict(zip(_field_names(kind), TABLES[kind].columns, strict=True))
    return [columns[name] == _to_column(value) for name, value in equals.items()]


def _field_names(kind: type[Any]) -> list[str]:
    return [name for name, _ in _FIELDS[kind]]


def _to_column(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return json.dumps({k: replace_refused(v) for k, v in value.items()}, ensure_ascii=False)
    if isinstance(value, tuple):
        return dump_names([replace_refused(item) for item in value])
    return replace_refused(value) if isinstance(value, str) else value


def _from_column(field_type: Any, value: Any) -> Any:
    if get_origin(field_type) is UnionType:
        return value if value is None else _from_column(get_args(field_type)[0], value)
    if get_origin(field_type) is Mapping:
        return json.loads(value)
    if get_origin(field_type) is tuple:
        return load_names(value)
    return field_type(value)
