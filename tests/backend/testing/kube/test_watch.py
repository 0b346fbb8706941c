"""Watches: windows, bookmarks, slow readers, and injected faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

Pod = Callable[..., dict[str, Any]]


async def lines(answer: aiohttp.ClientResponse, count: int = 1000) -> list[tuple[str, Any]]:
    """Return the types and objects of `count` events, or of fewer if the stream ends earlier."""
    seen: list[tuple[str, Any]] = []
    async for line in answer.content:
        event = json.loads(line)
        seen.append((event["type"], event["object"]))
        if len(seen) == count:
            break
    answer.close()
    return seen


def names(seen: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(kind, body["metadata"]["name"]) for kind, body in seen]


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def test_too_old_a_revision_is_an_error_within_200(http: Any) -> None:
    await http.create(config_map("a"), "configmaps")
    version = http.cluster.api.store.revision
    await http.create(config_map("b"), "configmaps")
    http.cluster.expire("configmaps")
    answer = await http.watch("configmaps", resourceVersion=version)
    assert answer.status == 200
    ((kind, status),) = await lines(answer)
    assert (kind, status["kind"], status["code"], status["reason"]) == (
        "ERROR",
        "Status",
        410,
        "Expired",
    )


async def test_the_window_is_bounded(clusters: Any) -> None:
    http = await clusters(nodes=0, window=10)
    version = http.cluster.api.store.revision
    for i in range(11):
        await http.create(config_map(f"c{i}"), "configmaps")
    seen = await lines(await http.watch("configmaps", resourceVersion=version), 1)
    assert seen[0][0] == "ERROR"
    seen = await lines(await http.watch("configmaps", resourceVersion=version + 1), 10)
    assert names(seen) == [("ADDED", f"c{i}") for i in range(1, 11)]
    history = http.cluster.api.store.histories[http.cluster.api.resources["configmaps"]]
    assert history.end - history.first == 10


async def test_a_revision_that_is_to_come_is_waited_for(http: Any) -> None:
    version = http.cluster.api.store.revision + 1
    asked = asyncio.ensure_future(http.watch("configmaps", resourceVersion=version))
    answer = await asked
    await http.create(config_map("a"), "configmaps")
    await http.create(config_map("b"), "configmaps")
    await http.cluster.advance(3)
    assert names(await lines(answer, 1)) == [("ADDED", "b")]


async def test_a_revision_that_does_not_come_is_an_error(http: Any) -> None:
    answer = await http.watch("configmaps", resourceVersion=10**9)
    await http.cluster.advance(3)
    ((kind, status),) = await lines(answer)
    assert (kind, status["code"], status["reason"]) == ("ERROR", 504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_watch_ends_when_its_time_is_over(http: Any) -> None:
    answer = await http.watch(timeoutSeconds=30)
    await http.cluster.advance(31)
    assert await lines(answer) == []


async def test_bookmarks_come_by_the_minute_and_at_the_end(http: Any) -> None:
    version = http.cluster.api.store.revision
    answer = await http.watch(
        resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds=90
    )
    await http.create(config_map("a"), "configmaps")
    await http.cluster.advance(60)
    ((kind, body),) = await lines_open(answer, 1)
    assert (kind, int(body["metadata"]["resourceVersion"])) == (
        "BOOKMARK",
        http.cluster.api.store.revision,
    )
    await http.cluster.advance(31)
    assert [k for k, _ in await lines(answer)] == ["BOOKMARK"]


async def lines_open(answer: aiohttp.ClientResponse, count: int) -> list[tuple[str, Any]]:
    rows = [json.loads(await answer.content.readline()) for _ in range(count)]
    return [(r["type"], r["object"]) for r in rows]


async def test_initial_events_end_with_a_bookmark(http: Any) -> None:
    await http.create(config_map("a"), "configmaps")
    answer = await http.watch("configmaps", sendInitialEvents="true", allowWatchBookmarks="true")
    # every namespace has a ConfigMap with the cluster's certificate
    seen = await lines_open(answer, 6)
    answer.close()
    assert {k for k, _ in seen[:-1]} == {"ADDED"}
    kind, body = seen[-1]
    assert (kind, body["metadata"]["annotations"]) == (
        "BOOKMARK",
        {"k8s.io/initial-events-end": "true"},
    )


async def test_a_slow_reader_is_cut_off_without_an_error(clusters: Any) -> None:
    """A real server sent 118 of 300 events of 60 kB, and ended the stream without an error."""
    http = await clusters(nodes=0, lag=20)
    await http.create(config_map("big"), "configmaps")
    version = http.cluster.api.store.revision
    slow = await http.watch("configmaps", resourceVersion=version)
    quick = await http.watch("configmaps", resourceVersion=version)
    reading = asyncio.ensure_future(lines(quick, 300))
    for i in range(300):
        body = {"data": {"x": str(i) * 20_000}}
        headers = {"Content-Type": "application/merge-patch+json"}
        await http.ask("PATCH", "api/v1/namespaces/default/configmaps/big", body, headers=headers)
    assert len(await reading) == 300
    seen = await lines(slow)
    assert 0 < len(seen) < 300
    assert {kind for kind, _ in seen} == {"MODIFIED"}


async def test_what_enters_and_leaves_a_selection(http: Any, pod: Pod) -> None:
    answer = await http.watch(
        fieldSelector="status.phase=Running", resourceVersion=http.cluster.api.store.revision
    )
    await http.create(pod("a"))
    await http.cluster.settle()
    http.cluster.kubelet.exit("a")
    seen = await lines(answer, 2)
    assert names(seen) == [("ADDED", "a"), ("DELETED", "a")]
    assert seen[1][1]["status"]["phase"] == "Running"  # the last state that matched the selector
    versions = [int(body["metadata"]["resourceVersion"]) for _, body in seen]
    assert versions[0] < versions[1]


async def test_a_frozen_stream_says_nothing_and_a_thawed_one_what_it_kept(http: Any) -> None:
    answer = await http.watch("configmaps", resourceVersion=http.cluster.api.store.revision)
    await http.create(config_map("a"), "configmaps")
    assert names(await lines_open(answer, 1)) == [("ADDED", "a")]
    assert http.cluster.watch_faults.freeze("configmaps") == 1
    await http.create(config_map("b"), "configmaps")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answer.content.readline(), 0.05)
    http.cluster.watch_faults.thaw()
    assert names(await lines_open(answer, 1)) == [("ADDED", "b")]
    http.cluster.watch_faults.end()
    assert await lines(answer) == []


async def test_events_are_doubled_swapped_and_lost_by_a_seed(http: Any, until: Any) -> None:
    async def told(seed: int) -> list[tuple[str, str]]:
        http.cluster.watch_faults.disturb(seed, duplicate=0.5, reorder=0.5, drop=0.1)
        version = http.cluster.api.store.revision
        for i in range(30):
            http.cluster.api.writes.create(
                http.cluster.api.resources["secrets"], "default", {"metadata": {"name": f"s{i}"}}
            )
        answer = await http.watch("secrets", resourceVersion=version, timeoutSeconds=1)
        reading = asyncio.ensure_future(lines(answer))
        await until(lambda: all(watch.sent for watch in http.cluster.server.watches))
        await http.cluster.advance(1)
        seen = names(await reading)
        await http.ask("DELETE", "api/v1/namespaces/default/secrets")
        return seen

    first, again, other = await told(1), await told(1), await told(2)
    assert first == again != other
    assert len(set(first)) < len(first) or first != sorted(first)


async def test_watches_are_counted_and_gone_with_their_clients(http: Any, until: Any) -> None:
    answers = [await http.watch() for _ in range(5)]
    assert http.cluster.counts()["watches"] == 5
    history = http.cluster.api.store.histories[http.cluster.api.resources["pods"]]
    assert len(history.readers) == 5
    for answer in answers:
        answer.close()
    await until(lambda: http.cluster.counts()["watches"] == 0)
    assert not history.readers


async def test_a_watch_of_one_name(http: Any) -> None:
    version = http.cluster.api.store.revision
    for name in "ab":
        await http.create(config_map(name), "configmaps")
    url = f"{http.cluster.url}/api/v1/namespaces/default/configmaps/b"
    query = {"watch": "1", "resourceVersion": str(version)}
    assert names(await lines(await http.session.get(url, params=query), 1)) == [("ADDED", "b")]
