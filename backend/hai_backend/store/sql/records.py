"""Records: small things that are kept as they are, one frozen dataclass a table, one field a column, in the same order.

Nothing here is particular to a kind; a new one is a dataclass in domain,
a class in rows/records.py and a line in TABLES.
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
from hai_backend.store.sql.convert import Values, dump_names, load_names, storable
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

Kept = TypeVar("Kept")

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

# Name and type of each field. Read once: annotations take longer to read than a row.
_FIELDS = {kind: tuple(get_type_hints(kind).items()) for kind in TABLES}


def key(record: object) -> Values:
    """What identifies a record: the values of its table's primary key."""
    named = zip(TABLES[type(record)].columns, _names(type(record)), strict=True)
    return tuple(getattr(record, name) for column, name in named if column.primary_key)


def records(connection: Connection, kind: type[Kept], equals: Mapping[str, object]) -> list[Kept]:
    """Those of a kind whose fields have these values, by key."""
    table = TABLES[kind]
    wanted = select(table).where(*_have(kind, equals)).order_by(*table.primary_key)
    return [_record(kind, row) for row in connection.execute(wanted)]


def add(transaction: Transaction, record: object) -> bool:
    """Insert a record, and tell whether its key was free; otherwise nothing changes."""
    found = select(TABLES[type(record)]).where(_is(record))
    if transaction.connection.execute(found).first() is not None:
        return False
    save(transaction, record)
    return True


def save(transaction: Transaction, record: object) -> None:
    """Insert or replace a record."""
    transaction.put(TABLES[type(record)], [values(record)])


def remove(transaction: Transaction, record: object) -> bool:
    """Delete the record of the same key, and tell whether there was one."""
    return transaction.delete(delete(TABLES[type(record)]).where(_is(record))) > 0


def remove_those(transaction: Transaction, kind: type[Any], equals: Mapping[str, object]) -> int:
    """Delete those of a kind whose fields have these values, and tell how many there were."""
    return transaction.delete(delete(TABLES[kind]).where(*_have(kind, equals)))


def values(record: object) -> Values:
    """The row of a record."""
    return tuple(_stored(getattr(record, name)) for name in _names(type(record)))


def _is(record: object) -> ColumnElement[bool]:
    columns = [c for c in TABLES[type(record)].columns if c.primary_key]
    return and_(*(c == _stored(v) for c, v in zip(columns, key(record), strict=True)))


def _have(kind: type[Any], equals: Mapping[str, object]) -> list[ColumnElement[bool]]:
    columns = dict(zip(_names(kind), TABLES[kind].columns, strict=True))
    return [columns[name] == _stored(value) for name, value in equals.items()]


def _stored(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return json.dumps({k: storable(v) for k, v in value.items()}, ensure_ascii=False)
    if isinstance(value, tuple):
        return dump_names([storable(item) for item in value])
    return storable(value) if isinstance(value, str) else value


def _record(kind: type[Kept], row: Sequence[Any]) -> Kept:
    found = zip(_FIELDS[kind], row, strict=True)
    return kind(**{name: _loaded(wanted, value) for (name, wanted), value in found})


def _names(kind: type[Any]) -> list[str]:
    return [name for name, _ in _FIELDS[kind]]


def _loaded(wanted: Any, value: Any) -> Any:
    if get_origin(wanted) is UnionType:
        return value if value is None else _loaded(get_args(wanted)[0], value)
    if get_origin(wanted) is Mapping:
        return json.loads(value)
    if get_origin(wanted) is tuple:
        return load_names(value)
    return wanted(value)
