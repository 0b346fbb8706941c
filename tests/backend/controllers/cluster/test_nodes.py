"""Nodes are kept over restarts of the server, with few writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace

import pytest

from hai_backend.controllers.cluster.nodes import Cluster
from hai_backend.domain.node import Group, Node, NodeState
from hai_backend.store.base import Store
from hai_backend.testing import ManualClock
from tests.support.databases import default_store

MONTH = 31 * 24 * 3600.0
NODES = [Node(f"n{i:03}", gpus=8) for i in range(100)]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with default_store() as made:
        yield made


async def started(store: Store, clock: ManualClock | None = None) -> Cluster:
    """Return the cluster of a server that has just started."""
    cluster = Cluster(store, clock or ManualClock(), changed=lambda: None)
    await cluster.load()
    return cluster


async def written(store: Store, cluster: Cluster, nodes: Sequence[Node]) -> list[int]:
    """Return how many nodes each transaction writes when the launcher reports these nodes."""
    counts: list[int] = []
    save = store.save_nodes

    async def counted(new: Collection[Node]) -> None:
        counts.append(len(new))
        await save(new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "save_nodes", counted)
        await cluster.update_nodes(nodes)
    return [count for count in counts if count]


async def test_all_nodes_are_written_at_once_and_after_a_restart_only_what_is_new(
    store: Store,
) -> None:
    assert await written(store, await started(store), NODES) == [100]
    again = await started(store)
    assert not any(node.usable for node in again.nodes().values())
    assert await written(store, again, [*NODES[:-1], replace(NODES[-1], gpus=4)]) == [1]
    assert all(node.usable for node in again.nodes().values())


async def test_when_a_node_changed_is_not_when_a_server_looked(store: Store) -> None:
    clock = ManualClock()
    await (await started(store, clock)).update_nodes(NODES)
    before = clock.now()
    clock.advance(60)
    again = await started(store, clock)
    await again.update_nodes(NODES)
    assert {node.updated_at for node in again.nodes().values()} == {before}


async def test_why_a_node_is_cordoned_is_known_after_a_restart(store: Store) -> None:
    cluster = await started(store)
    await cluster.update_nodes(NODES)
    said = (await cluster.set_cordoned("n001", True, "a fan is loud", "olga")).reason
    again = await started(store)
    assert again.nodes()["n001"].reason == said
    await again.update_nodes(NODES)
    assert (again.nodes()["n001"].reason, again.nodes()["n001"].cordoned) == (said, True)


async def test_removed_nodes_are_forgotten_after_a_month_if_nothing_was_said_of_them(
    store: Store,
) -> None:
    clock = ManualClock()
    cluster = await started(store, clock)
    await cluster.update_nodes(NODES[:4])
    await cluster.set_cordoned("n001", True, "", "olga")
    await cluster.set_labels("n002", lambda had: (("rack", "r7"),))
    await cluster.update_nodes(NODES[:1])
    assert len((await started(store, clock)).nodes()) == 4
    clock.advance(MONTH)
    again = await started(store, clock)
    assert sorted(again.nodes()) == ["n000", "n001", "n002"]
    assert [node.name for node in await again.update_nodes(NODES[:1])] == ["n001", "n002"]
    assert again.nodes()["n002"].state is NodeState.NOT_READY
    assert sorted((await started(store, clock)).nodes()) == ["n000", "n001", "n002"]


async def test_what_the_operator_says_of_a_group_beats_what_the_launcher_says(store: Store) -> None:
    cluster = await started(store)
    await cluster.update_nodes([Node("n1", gpus=2), Node("n2", "one", gpus=1)], {"default"})
    assert {name: group.packed for name, group in cluster.groups().items()} == {
        "default": True,
        "one": False,
    }
    await cluster.save_group(Group("default", packed=False))
    again = await started(store)
    await again.update_nodes([Node("n1", gpus=2)], {"default"})
    assert not again.groups()["default"].packed
