"""A fixture with the controllers and a cluster of two nodes for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hai_backend.domain.node import Node
from hai_backend.launch.fake import FakeLauncher
from tests.support.controller_harness import ControllerHarness
from tests.support.databases import default_store


@pytest.fixture
async def world() -> AsyncIterator[ControllerHarness]:
    nodes = [Node(f"n{i}", gpus=8) for i in range(2)]
    async with default_store() as store:
        made = ControllerHarness(store, FakeLauncher(nodes))
        await made.start()
        yield made
        await made.stop()
