"""The base class of all tables. It defines the column types for Python's types."""

from __future__ import annotations

from typing import cast

from sqlalchemy import BigInteger, Float, Integer, Table, Text
from sqlalchemy.orm import DeclarativeBase

# SQLite stores a primary key as the rowid only if its type is INTEGER.
_Int = BigInteger().with_variant(Integer(), "sqlite")
_Str = Text().with_variant(Text(collation="C"), "postgresql")


class Base(DeclarativeBase):
    """`Base.metadata` describes the schema. Alembic compares the database with it."""

    type_annotation_map = {int: _Int, float: Float(53), str: _Str}  # noqa: RUF012


def table(row: type[Base]) -> Table:
    """Return the Table object of a class."""
    return cast(Table, row.__table__)
