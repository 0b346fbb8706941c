"""Real servers, agents and programs; every test has a home of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hai_backend.testing.server import ServerProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/e2e/" in str(item.path):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Two nodes; not started yet."""
    made = ServerProcess(tmp_path, "--nodes", "2")
    yield made
    if made.running:
        made.end()
    made.sweep()
