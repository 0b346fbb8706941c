"""What the contract suite does not see: how much work reading records is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import get_type_hints

from sqlalchemy import create_engine

from hai_backend.domain.catalog.artifact import Artifact
from hai_backend.store.sql.records import TABLES, records, values


def test_annotations_are_not_read_again_for_every_row() -> None:
    table = TABLES[Artifact]
    kept = [Artifact("~ada", "a", str(version), "ada") for version in range(100)]
    with create_engine("sqlite://").begin() as connection:
        table.create(connection)
        connection.execute(table.insert().values([values(artifact) for artifact in kept]))
        read = _count(get_type_hints, lambda: records(connection, Artifact, {}))
    assert read == 0


def _count(function: Callable[..., object], run: Callable[[], object]) -> int:
    """How often a function is called meanwhile."""
    calls = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is function.__code__

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls
