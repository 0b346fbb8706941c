"""The pods that write staged checkpoints: when they exist, and what they leave. In virtual time, without sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hai_backend.launch.base import KillRequest, RankKey, RankTerminated
from hai_backend.launch.manifests.names import writer_name
from hai_backend.testing.kube import Answer

from .stage import SETTINGS, There, force, rank, story, there

STAGING = replace(SETTINGS, agent_image="any/hai:1", staging_path="/dev/shm/hai")
KEY = RankKey(7, 1, 0)
POD, WRITER = "hai-7-1-0", writer_name(KEY)


def spec(it: There, name: str) -> dict[str, object]:
    (body,) = [p for p in it.cluster.objects("pods", "default") if p["metadata"]["name"] == name]
    found: dict[str, object] = body["spec"]
    return found


@story
async def test_a_rank_that_reports_nothing_staged_has_no_writer() -> None:
    async with there() as it:
        one = await it.watch(settings=STAGING)
        await one.launcher.start([rank(0)])
        await one.launcher.kill(KillRequest(KEY, "n0", ran=True, exited=True))
        assert await one.next() == RankTerminated(KEY)
        await it.until(lambda: it.left() == [])


@story
async def test_a_writer_outlives_its_rank_and_goes_when_it_is_done() -> None:
    async with there() as it:
        one = await it.watch(settings=STAGING)
        await one.launcher.start([rank(0)])
        await one.launcher.write_checkpoints(KEY)
        await one.launcher.write_checkpoints(KEY)
        await it.until(lambda: WRITER in it.pods())
        assert spec(it, WRITER)["nodeName"] == "n0"
        await one.launcher.kill(KillRequest(KEY, "n0", ran=True, exited=True))
        assert await one.next() == RankTerminated(KEY)
        await it.until(lambda: it.left() == [WRITER])
        it.kubelet.exit(WRITER)  # type: ignore[attr-defined]
        await it.until(lambda: it.left() == [])


@pytest.mark.parametrize("finished", [False, True], ids=["killed", "the agent ended"])
def test_a_rank_that_ends_without_a_report_gets_one(finished: bool) -> None:
    @story
    async def test() -> None:
        async with there() as it:
            one = await it.watch(settings=STAGING)
            await one.launcher.start([rank(0)])
            if finished:
                it.kubelet.exit(POD, 1)  # type: ignore[attr-defined]
            else:
                await one.launcher.kill(KillRequest(KEY, "n0", ran=True))
            await one.next(RankTerminated)
            await it.until(lambda: it.left() == [WRITER])

    test()


@story
async def test_a_restarted_server_deletes_a_writer_that_is_done() -> None:
    async with there() as it:
        one = await it.watch(settings=STAGING)
        await one.launcher.start([rank(0)])
        await one.launcher.write_checkpoints(KEY)
        await it.until(lambda: WRITER in it.pods())
        await one.launcher.close()
        it.kubelet.exit(WRITER)  # type: ignore[attr-defined]
        await it.watch(settings=STAGING)
        await it.until(lambda: it.pods() == [POD])


@pytest.mark.parametrize("how", ["evicted", "deleted"])
def test_a_writer_that_ends_too_early_is_created_again(how: str) -> None:
    @story
    async def test() -> None:
        async with there() as it:
            one = await it.watch(settings=STAGING)
            await one.launcher.start([rank(0)])
            await one.launcher.write_checkpoints(KEY)
            await it.until(lambda: WRITER in it.pods())
            first = spec(it, WRITER)
            await one.launcher.kill(KillRequest(KEY, "n0", ran=True, exited=True))
            await one.next(RankTerminated)
            (evict if how == "evicted" else force)(it, WRITER)
            await it.until(lambda: WRITER not in it.pods())
            await it.until(lambda: WRITER in it.pods())
            assert spec(it, WRITER) == first
            it.kubelet.exit(WRITER)  # type: ignore[attr-defined]
            await it.until(lambda: it.left() == [])

    test()


def evict(it: There, name: str) -> None:
    """Fail a pod as a kubelet does whose node has too little memory."""
    local = it.kubelet.find(name)
    local.failed = "Evicted", "The node was low on resource: memory."
    it.kubelet.end_at_deadline(local)


@story
async def test_a_writer_of_a_node_that_was_removed_is_not_created_again() -> None:
    async with there() as it:
        one = await it.watch(settings=STAGING)
        await one.launcher.start([rank(0)])
        await one.launcher.write_checkpoints(KEY)
        await it.until(lambda: WRITER in it.pods())
        await one.launcher.kill(KillRequest(KEY, "n0", ran=True, exited=True))
        await one.next(RankTerminated)
        node = it.cluster.api.get("nodes", "", "n0")
        assert node is not None
        it.cluster.api.deletes.delete_if_current(node, grace=0)
        force(it, WRITER)
        await asyncio.sleep(60)  # virtual
        assert it.left() == []


@story
async def test_a_writer_that_cannot_be_created_keeps_no_rank() -> None:
    async with there() as it:
        one = await it.watch(settings=STAGING)
        await one.launcher.start([rank(0), rank(1, "n1")])
        it.cluster.faults.add(Answer(503), verb="create", resource="pods", times=10_000)
        writing = asyncio.ensure_future(one.launcher.write_checkpoints(KEY))
        for index in (1, 0):
            key = RankKey(7, 1, index)
            began = asyncio.get_running_loop().time()
            await one.launcher.kill(KillRequest(key, f"n{index}", ran=True, exited=True))
            assert await one.next() == RankTerminated(key)
            assert asyncio.get_running_loop().time() - began < (1 if index else 12)
        await writing


@story
async def test_a_writer_that_was_refused_is_tried_again_with_the_next_report() -> None:
    async with there() as it:
        one = await it.watch(settings=STAGING)
        await one.launcher.start([rank(0)])
        it.cluster.faults.add(Answer(403), verb="create", resource="pods", times=1)
        for tries in (1, 2):
            await one.launcher.write_checkpoints(KEY)
            assert (WRITER in it.pods()) == (tries == 2)


@story
async def test_without_a_staging_path_there_are_no_writers() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        await one.launcher.write_checkpoints(KEY)
        await one.launcher.kill(KillRequest(KEY, "n0", ran=True))
        await one.next(RankTerminated)
        await it.until(lambda: it.left() == [])
