"""The real GPUs of a node on its page and in the list of nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hai.client.profile import Profile
from hai.v1.node_pb2 import Gpu
from hai_tui.demo_cluster.cluster import DemoClient, demo
from hai_tui.screens.cluster import node_page

GIB = 1 << 30


@pytest.fixture
async def cluster() -> DemoClient:
    client = await demo()
    gpu = Gpu(
        model="NVIDIA H100 80GB HBM3",
        memory_bytes=80 * GIB,
        memory_used_bytes=61 * GIB,
        utilisation=0.93,
        temperature=71,
    )
    client.world.nodes["gpu-09"].gpu_devices.append(gpu)
    return client


@pytest.fixture
def app(drive, cluster):
    @asynccontextmanager
    async def opened(start: str) -> AsyncIterator:
        options = {"connect": lambda profile: cluster, "clock": lambda: cluster.world.now}
        async with drive(Profile("demo", "fake:0"), size=(170, 30), start=start, **options) as tui:
            yield tui

    return opened


async def test_the_page_of_a_node_follows_its_gpus(
    app, cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_page, "_USAGE_SECONDS", 0.1)
    async with app("node gpu-09") as tui:
        await tui.shows("GPU 0 H100 80GB HBM3: 93% in use, 61 GiB of 80 GiB, 71 °C")
        cluster.world.nodes["gpu-09"].gpu_devices[0].temperature = 55
        await tui.shows("61 GiB of 80 GiB, 55 °C")


async def test_the_list_of_nodes_has_a_column_if_gpus_are_measured(app, cluster) -> None:
    async with app("nodes") as tui:
        await tui.shows("93% 61/80G 71°C", "8 (H100 80GB HBM3)")


async def test_the_list_of_nodes_has_no_empty_column(app, cluster) -> None:
    del cluster.world.nodes["gpu-09"].gpu_devices[:]
    async with app("nodes") as tui:
        await tui.shows("gpu-09")
        assert "GPU%" not in tui.screen()
