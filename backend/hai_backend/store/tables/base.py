"""What all tables have in common: the metadata, and how Python's types are stored."""

from __future__ import annotations

from typing import cast

from sqlalchemy import BigInteger, Float, Integer, Table, Text
from sqlalchemy.orm import DeclarativeBase

_Int = BigInteger().with_variant(Integer(), "sqlite")  # INTEGER is what makes a rowid in SQLite
_Str = Text().with_variant(Text(collation="C"), "postgresql")


class Base(DeclarativeBase):
    """Owner of the metadata that alembic compares with."""

    type_annotation_map = {int: _Int, float: Float(53), str: _Str}  # noqa: RUF012


def table(row: type[Base]) -> Table:
    """The Table object of a class."""
    return cast(Table, row.__table__)
