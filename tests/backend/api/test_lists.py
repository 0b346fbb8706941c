"""DatasetService and MessageService."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from hai.v1 import dataset_service_pb2 as dpb
from hai.v1 import message_service_pb2 as mpb
from hai.v1.dataset_pb2 import (
    DATASET_VISIBILITY_GROUP,
    DATASET_VISIBILITY_PRIVATE,
    DATASET_VISIBILITY_PUBLIC,
    Dataset,
)
from hai_backend.domain.accounts.right import Grant

C = grpc.StatusCode
SEEN_BY = {
    DATASET_VISIBILITY_PUBLIC: ["ada", "bob", "eve", "olga"],
    DATASET_VISIBILITY_GROUP: ["ada", "bob", "olga"],
    DATASET_VISIBILITY_PRIVATE: ["ada", "olga"],
}


def a_dataset(name: str = "d", path: str = "/data/d", **more: Any) -> dpb.CreateDatasetRequest:
    more.setdefault("visibility", DATASET_VISIBILITY_PRIVATE)
    return dpb.CreateDatasetRequest(dataset=Dataset(name=name, path=path, **more))


@pytest.mark.parametrize("visibility", SEEN_BY)
async def test_visibility_of_datasets(platform: Any, visibility: Any) -> None:
    await platform.directory.grant(Grant("ada", False, "manage_storage"))
    ada = await platform.caller("ada")
    await ada.datasets.CreateDataset(a_dataset(visibility=visibility, user_group="vision"))
    await platform.directory.revoke("ada", False, "manage_storage")
    seen = []
    for name in ("ada", "bob", "eve", "olga"):
        caller = await platform.caller(name)
        found = (await caller.datasets.ListDatasets(dpb.ListDatasetsRequest())).datasets
        seen += [name] * len(found)
    assert seen == SEEN_BY[visibility]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(a_dataset(visibility=DATASET_VISIBILITY_PUBLIC), id="for everybody"),
        pytest.param(
            a_dataset(visibility=DATASET_VISIBILITY_GROUP, user_group="speech"), id="of others"
        ),
        pytest.param(a_dataset(user_group="speech"), id="private, of others"),
    ],
)
async def test_permission_to_create_datasets(
    platform: Any, expect_refusal: Any, refused: Any
) -> None:
    ada, olga = await platform.caller("ada"), await platform.caller("olga")
    async with expect_refusal() as why:
        await ada.datasets.CreateDataset(refused)
    assert why[0].code is C.PERMISSION_DENIED
    assert (await olga.datasets.CreateDataset(refused)).owner == "olga"


@pytest.mark.parametrize(
    "path", ["data", "", "/", "/data/../etc", "/..", "/./x", "/a//b", "/a/", "/a\nb", "/a\0"]
)
async def test_paths_must_be_absolute(platform: Any, expect_refusal: Any, path: str) -> None:
    ada = await platform.caller("ada")
    async with expect_refusal() as why:
        await ada.datasets.CreateDataset(a_dataset(path=path))
    assert "dataset.path" in dict(why[0].violations)


async def test_all_violations_are_reported_together(platform: Any, expect_refusal: Any) -> None:
    ada = await platform.caller("ada")
    wrong = a_dataset("a/b", "x", version="1:2", visibility=DATASET_VISIBILITY_GROUP, size_bytes=-1)
    async with expect_refusal() as why:
        await ada.datasets.CreateDataset(wrong)
    assert set(dict(why[0].violations)) == {
        f"dataset.{name}" for name in ("name", "version", "path", "user_group", "size_bytes")
    }
    assert (await ada.datasets.CreateDataset(a_dataset(path="/a/..b/c.d"))).path == "/a/..b/c.d"


def telling(text: str = "hello", subject: str = "", **more: Any) -> mpb.CreateMessageRequest:
    return mpb.CreateMessageRequest(message=mpb.Message(text=text, subject=subject, **more))


async def heard(platform: Any, name: str, **more: Any) -> list[str]:
    caller = await platform.caller(name)
    found = await caller.messages.ListMessages(mpb.ListMessagesRequest(**more))
    return [message.text for message in found.messages]


async def test_messages_reach_their_subjects_until_they_expire(
    platform: Any, expect_refusal: Any
) -> None:
    olga = await platform.caller("olga")
    await olga.messages.CreateMessage(telling("to all"))
    await olga.messages.CreateMessage(telling("to vision", "vision", subject_is_group=True))
    brief = telling("to ada", "ada")
    brief.message.expire_time.FromSeconds(int(platform.clock.now()) + 60)
    await olga.messages.CreateMessage(brief)
    assert await heard(platform, "ada") == ["to ada", "to vision", "to all"]
    assert await heard(platform, "bob") == ["to vision", "to all"]
    assert await heard(platform, "eve") == ["to all"]
    platform.clock.advance(61)
    assert await heard(platform, "ada") == ["to vision", "to all"]
    assert await heard(platform, "olga", all=True) == ["to ada", "to vision", "to all"]
    async with expect_refusal() as why:
        await heard(platform, "ada", all=True)
    assert why[0].code is C.PERMISSION_DENIED


async def test_invalid_messages_are_refused(platform: Any, expect_refusal: Any) -> None:
    olga = await platform.caller("olga")
    old = telling(" ", subject_is_group=True)
    old.message.expire_time.FromSeconds(1)
    async with expect_refusal() as why:
        await olga.messages.CreateMessage(old)
    assert set(dict(why[0].violations)) == {
        *("message.subject", "message.text", "message.expire_time")
    }
    async with expect_refusal() as why:
        await olga.messages.CreateMessage(telling("x" * 2001))
    assert "message.text" in dict(why[0].violations)
    async with expect_refusal() as why:
        await olga.messages.CreateMessage(telling(subject="nobody"))
    assert why[0].code is C.NOT_FOUND
