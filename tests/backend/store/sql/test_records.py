"""The cost of reading records."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import get_type_hints

from sqlalchemy import create_engine

from hai_backend.domain.catalog.artifact import Artifact
from hai_backend.store.sql.records import TABLES, find_records, to_row


def test_reading_rows_does_not_read_annotations() -> None:
    table = TABLES[Artifact]
    artifacts = [Artifact("~ada", "a", str(version), "ada") for version in range(100)]
    with create_engine("sqlite://").begin() as connection:
        table.create(connection)
        connection.execute(table.insert().values([to_row(artifact) for artifact in artifacts]))
        calls = _count_calls(get_type_hints, lambda: find_records(connection, Artifact, {}))
    assert calls == 0


def _count_calls(function: Callable[..., object], run: Callable[[], object]) -> int:
    """Count the calls of a function while `run` runs."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is function.__code__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls
