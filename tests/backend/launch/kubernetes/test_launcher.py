"""The launcher with the fake cluster, in virtual time and without sockets. Simulated hours take milliseconds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hai_backend.domain.errors import Unavailable
from hai_backend.domain.node import NodeState
from hai_backend.launch.base import (
    KillRequest,
    LaunchFailed,
    NodeList,
    RankKey,
    RankList,
    RankTerminated,
)
from hai_backend.testing.kube import Answer, Close, NodeSpec
from tests.support.virtual_time import run_virtually

from .stage import OPTIONS, SETTINGS, Watched, force, rank, story, there


@story
async def test_a_run_is_an_owner_and_what_it_owns_and_all_of_it_goes_with_its_last_rank() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0), rank(1, "n1")])
        assert it.left().count("hai-7-1") == 4  # owner, secret, headless service, policy
        assert it.pods() == ["hai-7-1-0", "hai-7-1-1"]
        it.kubelet.exit("hai-7-1-0")  # type: ignore[attr-defined]
        assert await one.next() == RankTerminated(RankKey(7, 1, 0))
        assert "hai-7-1" in it.left()
        it.kubelet.exit("hai-7-1-1")  # type: ignore[attr-defined]
        assert await one.next() == RankTerminated(RankKey(7, 1, 1))
        await it.until(lambda: it.left() == [])


@story
async def test_a_restarted_server_finds_its_ranks_and_takes_over() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0), rank(1, "n1")])
        await one.launcher.close()
        two = Watched(it.cluster, OPTIONS, SETTINGS)
        listed = RankList(
            frozenset({RankKey(7, 1, 0), RankKey(7, 1, 1)}), frozenset({(7, 1)}), complete=False
        )
        assert await two.begin() == listed
        await two.launcher.start([rank(0), rank(1, "n1")])
        assert it.pods() == ["hai-7-1-0", "hai-7-1-1"]
        await two.launcher.kill(KillRequest(RankKey(7, 1, 0), "n0"))
        assert await two.next() == RankTerminated(RankKey(7, 1, 0))
        await two.launcher.close()


@story
async def test_what_ended_while_no_server_was_there_is_told_and_cleaned() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        await one.launcher.close()
        it.kubelet.exit("hai-7-1-0", 137, reason="OOMKilled")  # type: ignore[attr-defined]
        two = await it.watch()
        gone = await two.next()
        assert gone == RankTerminated(RankKey(7, 1, 0))
        assert isinstance(gone, RankTerminated)
        assert "more memory" in gone.why
        await it.until(lambda: it.left() == [])


@story
async def test_a_rank_that_has_ended_takes_no_other_along_when_a_server_begins() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0), rank(1, "n1")])
        it.kubelet.exit("hai-7-1-0")  # type: ignore[attr-defined]
        assert await one.next() == RankTerminated(RankKey(7, 1, 0))
        await one.launcher.close()
        two = await it.watch()
        assert await two.next() == RankTerminated(RankKey(7, 1, 0))
        assert "hai-7-1-1" in it.pods()
        it.kubelet.exit("hai-7-1-1")  # type: ignore[attr-defined]
        assert await two.next() == RankTerminated(RankKey(7, 1, 1))
        await it.until(lambda: it.left() == [])


@story
async def test_a_rank_that_is_killed_when_its_pod_is_over_keeps_nothing() -> None:
    """A server that begins ends what is there and no task needs: also a pod that has ended already (storm 849)."""
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0), rank(1, "n1")])
        it.kubelet.exit("hai-7-1-0")  # type: ignore[attr-defined]
        assert await one.next() == RankTerminated(RankKey(7, 1, 0))
        await one.launcher.close()
        two = await it.watch()
        assert await two.next() == RankTerminated(RankKey(7, 1, 0))
        await two.launcher.kill(KillRequest(RankKey(7, 1, 0)))
        assert await two.next() == RankTerminated(RankKey(7, 1, 0))
        it.kubelet.exit("hai-7-1-1")  # type: ignore[attr-defined]
        assert await two.next() == RankTerminated(RankKey(7, 1, 1))
        await it.until(lambda: it.left() == [])


@story
async def test_an_owner_that_a_dead_server_left_without_ranks_is_swept() -> None:
    async with there() as it:
        one = await it.watch()
        it.cluster.faults.add(Answer(422), verb="create", resource="pods")
        await one.launcher.start([rank(0)])
        failed = await one.next()
        assert isinstance(failed, LaunchFailed)
        assert failed.reason.startswith("the cluster refused it")
        await one.launcher.close()
        it.cluster.faults.clear()
        names = {"name": "hai-9-1", "labels": dict(LABELS)}
        api = it.cluster.api
        api.writes.create(api.resources["configmaps"], "default", {"metadata": names})
        await it.watch()
        await it.until(lambda: it.left() == [], seconds=200)


LABELS = {
    "app.kubernetes.io/name": "hai-task",
    "app.kubernetes.io/managed-by": "hai",
    "app.kubernetes.io/instance": "mine",
    "hai.dev/task": "9",
    "hai.dev/run": "1",
}


@story
async def test_pods_of_another_installation_are_not_ours() -> None:
    async with there() as it:
        theirs = await it.watch(settings=replace(SETTINGS, instance="theirs"))
        await theirs.launcher.start([rank(0, task=1)])
        ours = Watched(it.cluster, OPTIONS, SETTINGS)
        assert await ours.begin() == RankList(frozenset(), complete=False)
        await asyncio.sleep(500)
        assert it.pods() == ["hai-1-1-0"]
        await ours.launcher.close()


@story
async def test_runs_that_an_earlier_server_had_begun_are_told() -> None:
    async with there() as it:
        one = await it.watch()
        it.cluster.faults.add(Answer(503), verb="create", resource="pods")
        starting = asyncio.ensure_future(one.launcher.start([rank(0)]))
        await it.until(lambda: "hai-7-1" in it.left())
        starting.cancel()
        await one.launcher.close()
        it.cluster.faults.add(Answer(503), verb="list", resource="configmaps", times=20)
        two = Watched(it.cluster, OPTIONS, SETTINGS)
        assert await two.begin() == RankList(frozenset(), frozenset({(7, 1)}), complete=False)
        await two.launcher.close()


@story
async def test_what_was_deleted_by_force_while_no_server_was_there_is_gone_when_nothing_runs() -> (
    None
):
    async with there() as it:
        it.kubelet.linger_seconds = 20.0  # type: ignore[attr-defined]
        one = await it.watch()
        await one.launcher.start([rank(0)])
        await one.launcher.close()
        force(it, "hai-7-1-0")
        two, began = await it.watch(), asyncio.get_running_loop().time()
        await two.launcher.kill(KillRequest(RankKey(7, 1, 0), "n0", ran=True))
        assert it.kubelet.pods
        assert await two.next() == RankTerminated(RankKey(7, 1, 0))
        assert not it.kubelet.pods
        assert asyncio.get_running_loop().time() - began < 70
        await it.until(lambda: it.left() == [])


@story
async def test_what_a_kubelet_has_ended_while_no_server_was_there_is_gone_at_once() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        await one.launcher.close()
        it.kubelet.exit("hai-7-1-0")  # type: ignore[attr-defined]
        two, began = await it.watch(), asyncio.get_running_loop().time()
        await two.launcher.kill(KillRequest(RankKey(7, 1, 0), "n0", ran=True))
        assert await two.next() == RankTerminated(RankKey(7, 1, 0))
        assert asyncio.get_running_loop().time() - began < 1


@story
async def test_what_hangs_on_a_node_that_has_just_died_may_run_on_when_somebody_deletes_it() -> (
    None
):
    """It is preempted, its kubelet does not answer, nobody knows yet that the node is cut off."""
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        it.cluster.nodes.partition("n0")
        began = asyncio.get_running_loop().time()
        await one.launcher.kill(KillRequest(RankKey(7, 1, 0), "n0"))
        await asyncio.sleep(3)
        force(it, "hai-7-1-0")
        assert await one.next() == RankTerminated(RankKey(7, 1, 0))
        assert asyncio.get_running_loop().time() - began > SETTINGS.fence_after


ONCE = [
    pytest.param(Answer(503), id="unavailable"),
    pytest.param(Answer(429), id="throttled"),
    pytest.param(Answer(409), id="conflict"),
    pytest.param(Close(), id="lost before"),
    pytest.param(Close(after=True), id="lost after"),
]


@pytest.mark.parametrize("fault", ONCE)
@pytest.mark.parametrize("verb", ["create", "delete", "list", "watch"])
def test_each_request_may_fail_some_times(fault: Answer | Close, verb: str) -> None:
    async def told() -> None:
        async with there() as it:
            it.cluster.faults.add(fault, verb=verb, times=12)
            one = await it.watch()
            await one.launcher.start([rank(0), rank(1, "n1")])
            await one.launcher.kill(KillRequest(RankKey(7, 1, 0), "n0"))
            assert await one.next() == RankTerminated(RankKey(7, 1, 0))
            await one.launcher.kill(KillRequest(RankKey(7, 1, 1), "n1"))
            assert await one.next() == RankTerminated(RankKey(7, 1, 1))
            await it.until(lambda: it.left() == [])

    run_virtually(told())


@story
async def test_a_start_waits_for_an_api_server_that_is_away() -> None:
    async with there() as it:
        one = await it.watch()
        rule = it.cluster.faults.add(Answer(503), verb="create")
        starting = asyncio.ensure_future(one.launcher.start([rank(0)]))
        await asyncio.sleep(3_000)
        assert not starting.done()
        it.cluster.faults.remove(rule)
        await starting
        assert it.pods() == ["hai-7-1-0"]


@pytest.mark.parametrize("resource", ["nodes", "pods", "configmaps"])
def test_a_cluster_that_refuses_the_first_lists_is_told_in_words(resource: str) -> None:
    async def tell() -> None:
        async with there() as it:
            it.cluster.faults.add(Answer(403), verb="list", resource=resource)
            with pytest.raises(Unavailable, match="the cluster refuses what the server needs"):
                await it.watch()

    run_virtually(tell())


@story
async def test_warnings_are_listed_again_when_their_first_list_is_refused() -> None:
    async with there() as it:
        rule = it.cluster.faults.add(Answer(403), verb="list", resource="events", times=1)
        await it.watch()
        await it.until(lambda: rule.match_count > 1)


@story
async def test_a_silent_stream_is_given_up() -> None:
    async with there() as it:
        one = await it.watch(replace(OPTIONS, relist_seconds=10_000.0))
        await one.launcher.start([rank(0)])
        await asyncio.sleep(1)
        it.cluster.watch_faults.freeze()
        it.kubelet.exit("hai-7-1-0")  # type: ignore[attr-defined]
        began = asyncio.get_running_loop().time()
        assert await one.next() == RankTerminated(RankKey(7, 1, 0))
        assert asyncio.get_running_loop().time() - began < 200


@story
async def test_what_the_streams_never_told_comes_with_the_next_list() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        it.cluster.watch_faults.end()
        it.cluster.expire()
        it.kubelet.exit("hai-7-1-0")  # type: ignore[attr-defined]
        assert await one.next() == RankTerminated(RankKey(7, 1, 0))


@story
async def test_a_bad_mount_of_the_operators_fails_each_rank_with_a_sentence() -> None:
    async with there() as it:
        one = await it.watch()
        nobody = replace(rank(0).run, uid=-1)
        await one.launcher.start([replace(rank(0), run=nobody)])
        failed = await one.next()
        assert isinstance(failed, LaunchFailed)
        assert "never run as root" in failed.reason
        assert not failed.unschedulable


@story
async def test_nodes_come_and_go_and_many_changes_are_told_at_once() -> None:
    async with there() as it:
        one = await it.watch()
        it.cluster.add_nodes([NodeSpec(f"more{i}") for i in range(50)])
        seen = await one.next(NodeList)
        assert isinstance(seen, NodeList)
        assert len(seen.nodes) == 52
        it.cluster.nodes.partition("n0")
        await it.until(lambda: True)
        held = await one.next(NodeList)
        lost = await one.next(NodeList)
        assert isinstance(held, NodeList)
        assert isinstance(lost, NodeList)
        (first,) = [n for n in held.nodes if n.name == "n0"]
        (second,) = [n for n in lost.nodes if n.name == "n0"]
        assert (first.state, first.usable) == (NodeState.READY, False)
        assert second.state is NodeState.NOT_READY


@story
async def test_a_preempted_pod_says_so_before_it_goes() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        it.kubelet.stop_seconds = 3.0  # type: ignore[attr-defined]
        await one.launcher.kill(KillRequest(RankKey(7, 1, 0), "n0", preempted=True))
        await asyncio.sleep(1)
        (pod,) = it.cluster.objects("pods", "default")
        assert "deletionTimestamp" in pod["metadata"]
        rows = {c["type"]: c.get("reason") for c in pod["status"]["conditions"]}
        assert rows["DisruptionTarget"] == "PreemptionByScheduler"
        assert await one.next() == RankTerminated(RankKey(7, 1, 0))


@story
async def test_an_eviction_minds_budgets_but_a_task_that_must_leave_leaves() -> None:
    async with there() as it:
        api = it.cluster.api
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"hai.dev/task": "7"}}}
        body = {"metadata": {"name": "keep"}, "spec": budget}
        api.writes.create(api.resources["poddisruptionbudgets"], "default", body)
        one = await it.watch(replace(OPTIONS, evict=True))
        await one.launcher.start([rank(0)])
        await one.launcher.kill(KillRequest(RankKey(7, 1, 0), "n0"))
        began = asyncio.get_running_loop().time()
        assert await one.next() == RankTerminated(RankKey(7, 1, 0))
        # the deletion was requested more than once
        assert asyncio.get_running_loop().time() - began > 1.0


@story
async def test_a_deadline_that_comes_before_the_first_list_forces_nothing() -> None:
    """Before it no node is known, and what is on a node that does not exist may be deleted by force."""
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        await one.launcher.close()
        it.kubelet.stop_seconds = 3.0  # type: ignore[attr-defined]
        two = Watched(it.cluster, OPTIONS, SETTINGS)
        killing = asyncio.ensure_future(two.launcher.kill(KillRequest(RankKey(7, 1, 0), "n0")))
        await asyncio.sleep(1)
        await two.begin()
        await killing
        await asyncio.sleep(1)
        (pod,) = it.cluster.objects("pods", "default")
        assert pod["metadata"]["deletionGracePeriodSeconds"] == OPTIONS.kill_grace
        assert await two.next() == RankTerminated(RankKey(7, 1, 0))
        await two.launcher.close()
