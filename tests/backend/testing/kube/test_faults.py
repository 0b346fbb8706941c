"""Faults between clients and the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from hai_backend.testing.kube import Answer, Close, Delay, Truncate

Pod = Callable[..., dict[str, Any]]
PODS = "api/v1/namespaces/default/pods"


@pytest.mark.parametrize("code", [409, 410, 429, 500, 502, 503, 504])
async def test_a_request_is_refused_and_nothing_is_done(http: Any, pod: Pod, code: int) -> None:
    http.cluster.faults.add(Answer(code), verb="create", resource="pods", nth=2)
    await http.create(pod("a"))
    answered, status = await http.ask("POST", PODS, pod("b"))
    assert (answered, status["kind"], status["code"]) == (code, "Status", code)
    assert [p["metadata"]["name"] for p in http.cluster.objects("pods")] == ["a"]
    await http.create(pod("b"))


async def test_too_many_requests_say_when_to_come_again(http: Any) -> None:
    http.cluster.faults.add(Answer(429, retry_after=7), verb="list")
    async with http.session.get(f"{http.cluster.url}/{PODS}") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")


async def test_a_connection_that_breaks_before_the_write(http: Any, pod: Pod) -> None:
    http.cluster.faults.add(Close(), verb="create", times=1)
    with pytest.raises(aiohttp.ClientError):
        await http.ask("POST", PODS, pod("a"))
    assert http.cluster.objects("pods") == []
    await http.create(pod("a"))


async def test_after_a_connection_that_breaks_after_the_write_a_retry_meets_409(
    http: Any, pod: Pod
) -> None:
    http.cluster.faults.add(Close(after=True), verb="create", times=1)
    with pytest.raises(aiohttp.ClientError):
        await http.ask("POST", PODS, pod("a"))
    code, status = await http.ask("POST", PODS, pod("a"))
    assert (code, status["reason"]) == (409, "AlreadyExists")


async def test_an_answer_that_ends_in_the_middle(http: Any, pod: Pod) -> None:
    await http.create(pod("a"))
    http.cluster.faults.add(Truncate(), verb="list")
    with pytest.raises(aiohttp.ClientPayloadError):
        await http.ask("GET", PODS)


async def test_a_delay_is_of_the_tests_clock(http: Any, pod: Pod, until: Any) -> None:
    http.cluster.faults.add(Delay(60), verb="create", name="*")
    asking = asyncio.ensure_future(http.ask("POST", PODS, pod("a")))
    await until(lambda: http.cluster.faults.injected)
    await http.cluster.advance(59)
    assert not asking.done()
    await http.cluster.advance(1)
    assert (await asking)[0] == 201


async def test_rules_choose_by_name_part_and_verb(http: Any, pod: Pod) -> None:
    for name in ("a-1", "b-1"):
        await http.create(pod(name))
    http.cluster.faults.add(Answer(500), verb="get", name="a-*", subresource="")
    assert (await http.ask("GET", f"{PODS}/a-1"))[0] == 500
    assert (await http.ask("GET", f"{PODS}/a-1/status"))[0] == 200
    assert (await http.ask("GET", f"{PODS}/b-1"))[0] == 200
    assert [s[:3] for s in http.cluster.faults.injected] == [("get", "pods", "a-1")]


async def test_the_same_seed_harms_the_same_requests(clusters: Any) -> None:
    async def injected(order: list[int]) -> set[Any]:
        http = await clusters(nodes=0, manual=False)
        http.cluster.faults.seed(5, rate=0.3)
        for i in order:
            try:
                await http.ask("GET", f"{PODS}/p{i}")
            except aiohttp.ClientError:
                continue
        return set(http.cluster.faults.injected)

    first = await injected(list(range(40)))
    assert first == await injected(list(reversed(range(40))))
    assert 3 < len(first) < 25


async def test_an_outage_breaks_streams_and_keeps_objects(http: Any, pod: Pod) -> None:
    await http.create(pod("a"))
    answer = await http.watch(resourceVersion=http.cluster.api.store.revision)
    async with http.cluster.outage():
        with pytest.raises(aiohttp.ClientError):
            await http.ask("GET", PODS)
    with pytest.raises(aiohttp.ClientError):
        await answer.content.read()
    answer.close()
    code, body = await http.ask("GET", PODS)
    assert (code, len(body["items"])) == (200, 1)


async def test_requests_are_recorded(http: Any, pod: Pod) -> None:
    await http.ask("POST", PODS, pod("a"), headers={"User-Agent": "mine/1"})
    await http.ask("GET", "version")
    (found,) = http.cluster.request_log.find(verb="create", resource="pods", agent="mine")
    assert (found.path, found.namespace, found.time) == (
        f"/{PODS}",
        "default",
        http.cluster.timers.now(),
    )
    assert http.cluster.request_log.find(verb="get")[-1].path == "/version"


async def test_pages_that_are_under_way_expire(http: Any, pod: Pod) -> None:
    for name in "abc":
        await http.create(pod(name))
    _, page = await http.ask("GET", f"{PODS}?limit=2")
    http.cluster.expire()
    code, status = await http.ask("GET", f"{PODS}?limit=2&continue={page['metadata']['continue']}")
    assert (code, status["reason"]) == (410, "Expired")
