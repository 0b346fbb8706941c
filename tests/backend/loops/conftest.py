"""A world of two nodes per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hai_backend.domain.node import Node
from hai_backend.launch.fake import FakeLauncher
from hai_backend.store.memory import MemoryStore
from hai_backend.testing.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    nodes = [Node(f"n{i}", gpus=8) for i in range(2)]
    made = World(MemoryStore(), FakeLauncher(nodes))
    await made.start()
    yield made
    await made.stop()
