"""Artifacts: ownership, use by tasks, and what other users can see."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from hai.v1 import artifact_service_pb2 as pb
from hai.v1 import task_service_pb2 as tpb
from hai.v1.artifact_pb2 import ARTIFACT_DIRECTION_INPUT, Artifact
from hai_backend.domain.catalog.artifact import Direction, TaskArtifact

C = grpc.StatusCode


async def made(caller: Any, name: str, user_group: str = "", **more: Any) -> Artifact:
    new = Artifact(name=name, user_group=user_group, **more)
    artifact = await caller.artifacts.CreateArtifact(pb.CreateArtifactRequest(artifact=new))
    assert isinstance(artifact, Artifact)
    return artifact


async def a_task(caller: Any, make_spec: Any, *, shared: bool) -> int:
    spec = make_spec("t")
    spec.options.shared_in_group = shared
    return int((await caller.tasks.CreateTask(tpb.CreateTaskRequest(spec=spec))).id)


def mapping(task: int, name: str, user_group: str = "") -> pb.MapArtifactRequest:
    return pb.MapArtifactRequest(
        task_id=task, direction=ARTIFACT_DIRECTION_INPUT, name=name, user_group=user_group
    )


async def names_of(caller: Any, task: int) -> list[str]:
    request = pb.ListTaskArtifactsRequest(task_id=task)
    found = (await caller.artifacts.ListTaskArtifacts(request)).artifacts
    return [mapped.artifact.name for mapped in found]


async def test_private_artifacts_have_a_space_per_user(platform: Any) -> None:
    ada, bob, eve = [await platform.caller(name) for name in ("ada", "bob", "eve")]
    for caller in (ada, bob):
        await made(caller, "model")
    await made(ada, "model", "vision")
    visible = {}
    for name, caller in (("ada", ada), ("bob", bob), ("eve", eve)):
        found = (await caller.artifacts.ListArtifacts(pb.ListArtifactsRequest())).artifacts
        visible[name] = [(a.user_group, a.owner) for a in found]
    assert visible == {
        "ada": [("vision", "ada"), ("", "ada")],
        "bob": [("vision", "ada"), ("", "bob")],
        "eve": [],
    }


async def test_update_keeps_owner_and_creation_time(platform: Any) -> None:
    ada, olga = await platform.caller("ada"), await platform.caller("olga")
    before = await made(ada, "model", "vision", version="2", type="weights", location="/a")
    platform.clock.advance(60)
    updated = Artifact(name="model", version="2", user_group="vision", location="/b", owner="olga")
    after = await olga.artifacts.UpdateArtifact(pb.UpdateArtifactRequest(artifact=updated))
    assert (after.owner, after.location, after.type) == ("ada", "/b", "")
    assert after.create_time == before.create_time
    assert after.update_time.seconds == before.update_time.seconds + 60


async def test_artifact_is_found_without_reading_all(
    platform: Any, make_spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await platform.caller("ada")
    task = await a_task(ada, make_spec, shared=False)
    for number in range(20):
        await made(ada, f"model-{number}")
        await ada.artifacts.MapArtifact(mapping(task, f"model-{number}"))
        await platform.store.save_record(TaskArtifact(task + 1 + number, Direction.INPUT))
    read, records = [], platform.store.records

    async def reading(kind: Any, **equals: Any) -> Any:
        found = await records(kind, **equals)
        read.extend(found)
        return found

    monkeypatch.setattr(platform.store, "records", reading)
    await ada.artifacts.GetArtifact(pb.GetArtifactRequest(name="model-7"))
    assert await names_of(ada, task) == ["model-19"]
    await ada.artifacts.DeleteArtifact(pb.DeleteArtifactRequest(name="model-19"))
    assert await names_of(ada, task) == []
    assert [getattr(each, "name", "") for each in read] == ["model-7"] + ["model-19"] * 3


async def test_all_violations_are_reported_together(platform: Any, expect_refusal: Any) -> None:
    ada = await platform.caller("ada")
    async with expect_refusal() as why:
        await made(ada, "a b", "~eve", version="x/y", type="two\nlines", location="x" * 3000)
    assert set(dict(why[0].violations)) == {
        f"artifact.{name}" for name in ("name", "version", "user_group", "type", "location")
    }
    async with expect_refusal() as why:
        await ada.artifacts.MapArtifact(pb.MapArtifactRequest(task_id=1, name="x"))
    assert dict(why[0].violations) == {"direction": "must be INPUT or OUTPUT"}


@pytest.mark.parametrize(
    ("shared", "whose", "group", "allowed"),
    [
        pytest.param(False, "ada", "", True, id="a private task, one's own"),
        pytest.param(False, "ada", "vision", True, id="a private task, one's own in a group"),
        pytest.param(False, "bob", "vision", False, id="a private task, a colleague's"),
        pytest.param(True, "bob", "vision", True, id="a shared task, a colleague's"),
    ],
)
async def test_artifacts_that_a_task_may_use(
    platform: Any, make_spec: Any, expect_refusal: Any, shared: bool, whose: str, group: str,
    allowed: bool,
) -> None:  # fmt: skip
    ada = await platform.caller("ada")
    await made(await platform.caller(whose), "model", group)
    task = await a_task(ada, make_spec, shared=shared)
    if allowed:
        await ada.artifacts.MapArtifact(mapping(task, "model", group))
        assert await names_of(ada, task) == ["model"]
        return
    async with expect_refusal() as why:
        await ada.artifacts.MapArtifact(mapping(task, "model", group))
    assert why[0].code is C.PERMISSION_DENIED
    assert await names_of(ada, task) == []


async def test_private_artifacts_of_a_visible_task_are_hidden(
    platform: Any, make_spec: Any
) -> None:
    ada, bob, olga = [await platform.caller(name) for name in ("ada", "bob", "olga")]
    await made(ada, "secret")
    task = await a_task(ada, make_spec, shared=True)
    await ada.artifacts.MapArtifact(mapping(task, "secret"))
    request = pb.ListTaskArtifactsRequest(task_id=task)
    told = (await bob.artifacts.ListTaskArtifacts(request)).artifacts
    assert [m.artifact for m in told] == [Artifact(name="***")]
    assert await names_of(olga, task) == ["secret"]


async def test_private_artifacts_of_others_cannot_be_mapped_or_probed(
    platform: Any, make_spec: Any, expect_refusal: Any
) -> None:
    ada, eve = await platform.caller("ada"), await platform.caller("eve")
    await made(ada, "secret")
    task = await a_task(eve, make_spec, shared=False)
    for call in (
        eve.artifacts.MapArtifact(mapping(task, "secret")),
        eve.artifacts.GetArtifact(pb.GetArtifactRequest(name="secret", owner="ada")),
        eve.artifacts.DeleteArtifact(pb.DeleteArtifactRequest(name="secret", owner="ada")),
    ):
        async with expect_refusal() as why:
            await call
        assert why[0].code is C.NOT_FOUND
    await made(eve, "secret")  # the name is free for another user
