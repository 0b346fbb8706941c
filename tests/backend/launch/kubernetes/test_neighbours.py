"""Two installations in one namespace. They use the same names, and must not change each other's objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from hai_backend.domain.spec import ServiceType
from hai_backend.launch.base import (
    KillRequest,
    LaunchFailed,
    RankKey,
    RankLaunch,
    RankList,
    RankTerminated,
)
from hai_backend.launch.kubernetes.api import Answer, Call
from hai_backend.launch.kubernetes.launcher import KubernetesLauncher
from hai_backend.launch.request import ServiceRequest
from hai_backend.testing.kube import Answer as Refusal
from hai_backend.testing.kube.body import Body
from tests.support.direct_transport import DirectTransport
from tests.support.virtual_time import run_virtually

from .stage import OPTIONS, OURS, SETTINGS, There, Watched, force, rank, story, there

THEIRS = replace(SETTINGS, instance="theirs")
KEY = RankKey(7, 1, 0)
SSH = ServiceRequest("ssh", ServiceType.TCP, 22)
LABELS = {
    "app.kubernetes.io/name": "hai-task",
    "app.kubernetes.io/managed-by": "hai",
    "app.kubernetes.io/instance": "theirs",
    "hai.dev/task": "7",
    "hai.dev/run": "1",
    "hai.dev/rank": "0",
}


def everything(it: There) -> dict[tuple[str, str], Body]:
    """Return all objects of runs. A change of an object would change its version."""
    return {
        (plural, body["metadata"]["name"]): body
        for plural in OURS
        for body in it.cluster.objects(plural, "default")
        if body["metadata"]["name"].startswith("hai-")
    }


def with_ssh(index: int) -> RankLaunch:
    """Return a rank of a run that publishes a service."""
    made = rank(index)
    return replace(made, run=replace(made.run, services=(SSH,)))


@story
async def test_a_run_of_theirs_lives_on_whatever_we_do_with_ours_of_the_same_number() -> None:
    async with there() as it:
        theirs = await it.watch(settings=THEIRS)
        await theirs.launcher.start([with_ssh(0), with_ssh(1)])
        await asyncio.sleep(1)
        before = everything(it)
        ours = await it.watch(replace(OPTIONS, evict=True))
        await ours.launcher.start([with_ssh(0)])
        failed = await ours.next()
        assert isinstance(failed, LaunchFailed)
        assert failed.key == KEY
        assert failed.reason == (
            "the namespace default has a ConfigMap hai-7-1 already, of the installation theirs: let each installation"
            " have a namespace of its own (setting kubernetes.namespace), or delete what is not needed"
        )
        await ours.launcher.kill(KillRequest(KEY, "n0", preempted=True))
        assert await ours.next() == RankTerminated(KEY)
        await asyncio.sleep(500)  # the garbage collector runs several times
        await ours.launcher.close()
        again = Watched(it.cluster, OPTIONS, SETTINGS)
        assert await again.begin() == RankList(frozenset(), complete=False)
        await again.launcher.kill(KillRequest(KEY, "n0", ran=True))
        assert await again.next() == RankTerminated(KEY)
        await again.launcher.close()
        assert everything(it) == before
        await theirs.launcher.close()
        restarted = Watched(it.cluster, OPTIONS, THEIRS)
        assert (await restarted.begin()).keys == {KEY, RankKey(7, 1, 1)}
        await restarted.launcher.kill(KillRequest(KEY, "n0"))
        assert await restarted.next() == RankTerminated(KEY)
        await restarted.launcher.kill(KillRequest(RankKey(7, 1, 1), "n0"))
        await it.until(lambda: it.left() == [])
        await restarted.launcher.close()


ANY_POD = {"containers": [{"name": "any", "image": "any/image:1"}], "nodeName": "n1"}
ANY_SERVICE = {"ports": [{"port": 1}], "selector": {"any": "thing"}}
OBJECTS = [
    pytest.param("configmaps", "hai-7-1", {}, id="owner"),
    pytest.param("secrets", "hai-7-1", {"data": {"a": "YQ=="}}, id="secret"),
    pytest.param("services", "hai-7-1", {"spec": ANY_SERVICE}, id="headless service"),
    pytest.param("services", "hai-7-1-ssh", {"spec": ANY_SERVICE}, id="published service"),
    pytest.param("networkpolicies", "hai-7-1", {"spec": {"podSelector": {}}}, id="policy"),
    pytest.param("pods", "hai-7-1-0", {"spec": ANY_POD}, id="pod"),
]
WHOSE = [
    pytest.param(LABELS, "of the installation theirs", id="of another installation"),
    pytest.param({}, "which is not of this installation", id="of somebody"),
    pytest.param(
        {**LABELS, "app.kubernetes.io/instance": "mine", "hai.dev/run": "2"},
        "of the installation mine",
        id="ours, of another run",
    ),
]


@pytest.mark.parametrize(("labels", "whose"), WHOSE)
@pytest.mark.parametrize(("plural", "name", "body"), OBJECTS)
def test_one_object_of_the_same_name_fails_the_rank_and_stays_as_it_is(
    plural: str, name: str, body: Body, labels: dict[str, str], whose: str
) -> None:
    async def told() -> None:
        async with there() as it:
            api = it.cluster.api
            made = {"metadata": {"name": name, "labels": labels}, **body}
            api.writes.create(api.resources[plural], "default", made)
            await asyncio.sleep(1)
            before = everything(it)
            one = await it.watch()
            await one.launcher.start([with_ssh(0)])
            failed = await one.next()
            assert isinstance(failed, LaunchFailed)
            assert f" {name} already, " in failed.reason
            assert whose in failed.reason or plural == "secrets"  # the server cannot read Secrets
            await one.launcher.kill(KillRequest(KEY, "n0"))
            assert await one.next() == RankTerminated(KEY)
            await asyncio.sleep(30)
            assert everything(it) == before

    run_virtually(told())


@story
async def test_a_pod_that_has_taken_the_name_of_ours_is_not_ended_for_it() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        await asyncio.sleep(1)
        it.cluster.watch_faults.freeze()
        force(it, "hai-7-1-0")
        api = it.cluster.api
        body = {"metadata": {"name": "hai-7-1-0", "labels": LABELS}, "spec": ANY_POD}
        api.writes.create(api.resources["pods"], "default", body)
        await asyncio.sleep(1)
        (before,) = it.cluster.objects("pods", "default")
        await one.launcher.kill(KillRequest(KEY, "n0", preempted=True))
        it.cluster.watch_faults.thaw()
        assert await one.next() == RankTerminated(KEY)
        assert it.cluster.objects("pods", "default") == [before]


@story
async def test_a_later_rank_of_a_run_adds_to_what_is_there() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        await one.launcher.close()
        two = await it.watch()
        await two.launcher.start([rank(1, "n1")])
        (secret,) = it.cluster.objects("secrets", "default")
        assert sorted(secret["data"]) == ["agent-0.json", "agent-1.json"]
        assert it.pods() == ["hai-7-1-0", "hai-7-1-1"]


@story
async def test_a_patch_that_is_refused_for_another_reason_is_told_as_that() -> None:
    async with there() as it:
        one = await it.watch()
        await one.launcher.start([rank(0)])
        it.cluster.faults.add(Refusal(403), verb="patch", resource="secrets")
        await one.launcher.start([rank(1, "n1")])
        failed = await one.next()
        assert isinstance(failed, LaunchFailed)
        assert failed.reason.startswith("the cluster refused it")


class Noting(DirectTransport):
    """Records which single objects are requested."""

    looked: tuple[str, ...] = ()

    async def ask(self, call: Call, seconds: float) -> Answer:
        if call.method == "GET" and "hai-" in call.path:
            self.looked = (*self.looked, call.path)
        return await super().ask(call, seconds)


@asynccontextmanager
async def noting(it: There) -> AsyncIterator[KubernetesLauncher]:
    """A launcher past its first list, which may look at nothing one by one."""
    transport = Noting(it.cluster)
    launcher = KubernetesLauncher(transport, SETTINGS, OPTIONS, Random(1))
    events = launcher.events()
    while not isinstance(await anext(events), RankList):
        pass
    await asyncio.sleep(1)
    yield launcher
    await it.until(lambda: it.pods() in ([], ["hai-8-1-0"]))
    await asyncio.sleep(1)
    assert transport.looked == ()
    await launcher.close()


@story
async def test_what_is_known_to_be_ours_is_not_looked_at_before_it_is_ended() -> None:
    async with there() as it:
        async with noting(it) as launcher:
            await launcher.start([rank(0)])
            await launcher.start([rank(0, "n1", task=8)])
            await launcher.kill(KillRequest(KEY, "n0", preempted=True))
        async with noting(it) as launcher:
            await launcher.kill(KillRequest(RankKey(8, 1, 0), "n1"))
            await it.until(lambda: it.pods() == [])
        assert it.left() == []
