"""Long lists are split into pages, and each page continues where the previous page ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from hai.client.resources.requests import pages
from hai.v1 import artifact_service_pb2 as artifacts
from hai.v1 import node_service_pb2 as nodes
from hai.v1 import task_service_pb2 as tasks
from hai.v1.artifact_pb2 import Artifact
from hai_backend.api.request import limits, paging
from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, Run, RunState, TaskEvent
from tests.support.builders import a_spec

Ask = Callable[[str, int], Awaitable[Any]]


async def listed(platform: Any, many: int) -> dict[str, tuple[Ask, list[Any]]]:
    """Return for each list a function that requests a page, and the keys that all pages must contain."""
    ada = await platform.caller("ada")
    task = await platform.task_manager.submit("ada", a_spec("t"), "")
    for number in range(1, many + 1):
        name = f"m{number:03}"
        await platform.cluster.update_nodes([Node(name, group="many")])
        await ada.artifacts.CreateArtifact(
            artifacts.CreateArtifactRequest(artifact=Artifact(name=name, location="/m"))
        )
        run = Run(number, RunState.ENDED, (Rank(0, name),), 0.0, Priority.NORMAL)
        event = TaskEvent(0.0, "ada", f"Did{number}")
        task = await platform.store.save_task(
            replace(task, run=run, revision=task.revision + 1), [event]
        )
    names = [f"m{number:03}" for number in range(1, many + 1)]
    return {
        "nodes": (
            lambda token, size: ada.nodes.ListNodes(
                nodes.ListNodesRequest(group="many", page_token=token, page_size=size)
            ),
            names,
        ),
        "artifacts": (
            lambda token, size: ada.artifacts.ListArtifacts(
                artifacts.ListArtifactsRequest(page_token=token, page_size=size)
            ),
            names,
        ),
        "runs": (
            lambda token, size: ada.tasks.ListRuns(
                tasks.ListRunsRequest(id=task.id, after=1, page_token=token, page_size=size)
            ),
            list(range(2, many + 1)),
        ),
        "events": (
            lambda token, size: ada.tasks.ListTaskEvents(
                tasks.ListTaskEventsRequest(id=task.id, after=1, page_token=token, page_size=size)
            ),
            list(range(2, many + 2)),  # the first event is the submission
        ),
    }


def keys(page: Any) -> list[Any]:
    """Return the keys of the entries of a page."""
    ((_, found), *_) = page.ListFields() or ((None, ()),)
    return [
        getattr(each, next(f for f in ("name", "number", "sequence") if hasattr(each, f)))
        for each in found
    ]


async def everything(ask: Ask, size: int) -> list[list[Any]]:
    return [keys(page) async for page in pages(lambda token: ask(token, size))]


async def test_pages_of_a_size(platform: Any) -> None:
    for ask, expected in (await listed(platform, 7)).values():
        assert await everything(ask, 3) == [expected[i : i + 3] for i in range(0, len(expected), 3)]
        assert await everything(ask, len(expected)) == [expected]
        assert await everything(ask, 0) == [expected]


async def test_pages_are_limited_to_the_size_that_clients_accept(
    platform: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(limits, "PAGE_BYTES", 100)
    for ask, expected in (await listed(platform, 12)).values():
        found = await everything(ask, 0)
        assert len(found) > 2
        assert [key for page in found for key in page] == expected


@pytest.mark.parametrize("token", ["x", "-1", "1" * 10, "²"])
async def test_invalid_page_tokens_are_refused(
    platform: Any, expect_refusal: Any, token: str
) -> None:
    every = await listed(platform, 1)
    for name in ("runs", "events"):
        async with expect_refusal() as why:
            await every[name][0](token, 0)
        assert why[0].violations == (("page_token", "is not one of this list"),)


async def test_page_has_no_negative_size(platform: Any, expect_refusal: Any) -> None:
    for ask, _ in (await listed(platform, 1)).values():
        async with expect_refusal() as why:
            await ask("", -1)
        assert [field for field, _ in why[0].violations] == ["page_size"]


def test_size_of_a_page() -> None:
    assert [paging.page_size(n, 50) for n in (0, 7, 5000)] == [50, 7, 1000]
    with pytest.raises(Invalid):
        paging.page_size(-1)


async def test_page_of_nodes_has_a_maximum_size(platform: Any) -> None:
    ada = await platform.caller("ada")
    await platform.cluster.update_nodes([Node(f"m{i:04}") for i in range(1500)])
    for asked in (0, 1200):
        page = await ada.nodes.ListNodes(nodes.ListNodesRequest(page_size=asked))
        assert (len(page.nodes), page.next_page_token) == (1000, "m0999")
