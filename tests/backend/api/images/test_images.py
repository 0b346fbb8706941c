"""Images: permission to use them, pins of tasks, and registries that are down."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from hai.v1 import image_service_pb2 as ipb
from hai.v1 import task_service_pb2 as tpb
from hai.v1.image_pb2 import Image, Registry
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.catalog.image import Registry as StoredRegistry
from hai_backend.domain.errors import Unavailable

C = grpc.StatusCode
OLD, NEW = "sha256:" + "1" * 64, "sha256:" + "2" * 64
TORCH = "r.example/base/torch:2"


def image(name: str = "torch", reference: str = TORCH, **fields: Any) -> ipb.SetImageRequest:
    return ipb.SetImageRequest(image=Image(name=name, reference=reference, **fields))


def registry(prefix: str, username: str = "", **fields: Any) -> ipb.SetRegistryRequest:
    password = {"password": fields.pop("password")} if "password" in fields else {}
    kept = Registry(prefix=prefix, username=username, **fields)
    return ipb.SetRegistryRequest(registry=kept, **password)


async def names(caller: Any) -> list[str]:
    return [i.name for i in (await caller.images.ListImages(ipb.ListImagesRequest())).images]


async def test_users_see_images_of_their_groups(platform: Any, expect_refusal: Any) -> None:
    root, ada, eve = [await platform.caller(name) for name in ("root", "ada", "eve")]
    await root.images.SetImage(image())
    await root.images.SetImage(image("lab", "r.example/lab/main", user_groups=["vision"]))
    assert await names(root) == await names(ada) == ["lab", "torch"]
    assert await names(eve) == ["torch"]
    async with expect_refusal() as why:
        await eve.images.CheckImage(ipb.CheckImageRequest(image="lab"))
    assert (why[0].code, why[0].reason) == (C.NOT_FOUND, "NO_SUCH_IMAGE")


async def test_one_image_is_the_default(platform: Any) -> None:
    root = await platform.caller("root")
    platform.registries.digests["r.example/b/i:2"] = NEW
    await root.images.SetImage(image("a", is_default=True))
    await root.images.SetImage(image("b", "r.example/b/i:2", is_default=True))
    listed = (await root.images.ListImages(ipb.ListImagesRequest())).images
    assert [(i.name, i.is_default) for i in listed] == [("a", False), ("b", True)]
    checked = await root.images.CheckImage(ipb.CheckImageRequest(image="default"))
    assert (checked.reference, checked.digest) == ("r.example/b/i:2", NEW)
    assert checked.pinned == f"r.example/b/i:2@{NEW}"


async def test_all_violations_of_an_image_are_reported(platform: Any, expect_refusal: Any) -> None:
    root = await platform.caller("root")
    async with expect_refusal() as why:
        await root.images.SetImage(
            image("a/b", "ubuntu", user_groups=["x y"], description="two\nlines")
        )
    assert set(dict(why[0].violations)) == {
        *("image.name", "image.reference", "image.user_groups[0]", "image.description")
    }


@pytest.mark.parametrize(
    ("right", "path", "allowed"),
    [
        pytest.param("image:r.example/lab/", "r.example/lab/a", True, id="below a project"),
        pytest.param("image:r.example/lab", "r.example/lab/a/b:7", True, id="deeper"),
        pytest.param("image:r.example/lab", "r.example/lab", True, id="itself"),
        pytest.param("image:r.example", "r.example/any/thing", True, id="a whole registry"),
        pytest.param("image:r.example/lab", "r.example/laboratory/a", False, id="half a name"),
        pytest.param("image:r.example", "r.example.evil/lab/a", False, id="half a host"),
        pytest.param("image:r.example", "r.example:5000/lab/a", False, id="another port"),
        pytest.param("image:r.example/lab", "r.example/other/a", False, id="another project"),
        pytest.param("manage_nodes", "r.example/lab/a", False, id="another right"),
    ],
)
async def test_right_for_a_prefix_matches_whole_path_segments(
    platform: Any, expect_refusal: Any, right: str, path: str, allowed: bool
) -> None:
    await platform.directory.grant(Grant("vision", True, right))
    ada, asked = await platform.caller("ada"), ipb.ListImageTagsRequest(image=path)
    if allowed:
        await ada.images.ListImageTags(asked)
        return
    async with expect_refusal() as why:
        await ada.images.ListImageTags(asked)
    assert (why[0].code, why[0].reason) == (C.PERMISSION_DENIED, "IMAGE_NOT_ALLOWED")


@pytest.mark.parametrize(
    "path", ["r.example/Upper", "r.example/a:b:c", "team/a", "r.example/a@sha256:1", "r.example/"]
)
async def test_invalid_references_are_refused(
    platform: Any, expect_refusal: Any, path: str
) -> None:
    root = await platform.caller("root")
    async with expect_refusal() as why:
        await root.images.CheckImage(ipb.CheckImageRequest(image=path))
    assert why[0].reason == "BAD_REFERENCE"


async def test_passwords_are_never_returned(platform: Any, expect_refusal: Any) -> None:
    root = await platform.caller("root")
    kept = await root.images.SetRegistry(registry("r.example/lab", "robot$lab", password="hunter2"))
    assert kept == Registry(prefix="r.example/lab", username="robot$lab", has_password=True)
    await root.images.SetRegistry(registry("r.example", "ci", password="hunter2"))
    listed = await root.images.ListRegistries(ipb.ListRegistriesRequest())
    assert "hunter2" not in str(listed)
    async with expect_refusal():
        await root.images.SetRegistry(registry("BAD", "a:b", password="hunter2"))
    async with expect_refusal():
        await root.images.SetRegistry(registry("r" * 256, "ci", password="hunter2"))
    rows = (await platform.store.audit()).rows
    assert {r.code for r in rows} == {"OK", "INVALID_ARGUMENT"}
    assert "hunter2" not in str(rows)
    assert "hunter2" not in repr(await platform.store.records(StoredRegistry))


async def test_longest_prefix_counts_and_a_password_stays_with_its_account(
    platform: Any,
) -> None:
    root = await platform.caller("root")
    for prefix, user in (("r.example", "ci"), ("r.example/lab", "robot")):
        await root.images.SetRegistry(registry(prefix, user, password=f"of {user}"))
    platform.registries.digests["r.example/lab/a:1"] = OLD
    await root.images.CheckImage(ipb.CheckImageRequest(image="r.example/lab/a:1"))
    assert [(r.username, r.password) for _, r in platform.registries.requested] == [
        ("robot", "of robot")
    ]
    same = await root.images.SetRegistry(registry("r.example", "ci", plain_http=True))
    assert same.has_password
    other = await root.images.SetRegistry(registry("r.example", "somebody"))
    assert not other.has_password


class TestSubmitting:
    """Submissions with a launcher that runs images."""

    @pytest.fixture
    def image_check(self) -> str:
        return "warn"

    async def submitted(self, caller: Any, make_spec: Any, name: str, **more: Any) -> Any:
        spec = make_spec(name, image=more.pop("image", "torch"))
        return await caller.tasks.CreateTask(tpb.CreateTaskRequest(spec=spec, **more))

    async def story(self, caller: Any, task: int) -> str:
        told = await caller.tasks.ListTaskEvents(tpb.ListTaskEventsRequest(id=task))
        return str(told.events[0].reason)

    async def test_task_is_pinned_to_what_the_image_is_now(
        self, platform: Any, make_spec: Any
    ) -> None:
        root, ada = await platform.caller("root"), await platform.caller("ada")
        await root.images.SetImage(image())
        platform.registries.digests[TORCH] = OLD
        first = await self.submitted(ada, make_spec, "one")
        assert first.spec.resource.image == f"{TORCH}@{OLD}"
        assert await self.story(ada, first.id) == f"1 node; image torch is {TORCH}@{OLD}"
        platform.registries.digests[TORCH] = NEW
        platform.clock.advance(31)
        second = await self.submitted(ada, make_spec, "two")
        assert second.spec.resource.image == f"{TORCH}@{NEW}"

    async def test_what_a_task_was_pinned_to_can_be_submitted_again(
        self, platform: Any, make_spec: Any, expect_refusal: Any
    ) -> None:
        root, ada, eve = [await platform.caller(name) for name in ("root", "ada", "eve")]
        await root.images.SetImage(image(user_groups=["vision"]))
        platform.registries.digests |= {TORCH: OLD, f"{TORCH}@{OLD}": OLD}
        first = await self.submitted(ada, make_spec, "one")
        again = await self.submitted(ada, make_spec, "two", image=first.spec.resource.image)
        assert again.spec.resource.image == first.spec.resource.image
        for other in (f"{TORCH}@{OLD}", "r.example/base/torch:3"):
            async with expect_refusal() as why:
                await self.submitted(eve, make_spec, "three", image=other)
            assert why[0].reason == "IMAGE_NOT_ALLOWED"

    async def test_sweep_asks_the_registry_once(self, platform: Any, make_spec: Any) -> None:
        root, ada = await platform.caller("root"), await platform.caller("ada")
        await root.images.SetImage(image())
        platform.registries.digests[TORCH] = OLD
        await asyncio.gather(*(self.submitted(ada, make_spec, f"t{i}") for i in range(20)))
        assert len(platform.registries.requested) == 1

    @pytest.mark.parametrize(
        ("asked", "reason"),
        [
            pytest.param("torhc", "NO_SUCH_IMAGE", id="a name that is not there"),
            pytest.param("torch", "NO_SUCH_IMAGE", id="gone from the registry"),
            pytest.param("r.example/lab/a", "IMAGE_NOT_ALLOWED", id="not allowed"),
        ],
    )
    async def test_what_cannot_run_is_refused(
        self, platform: Any, make_spec: Any, expect_refusal: Any, asked: str, reason: str
    ) -> None:
        root, ada = await platform.caller("root"), await platform.caller("ada")
        await root.images.SetImage(image())
        for validate_only in (True, False):
            async with expect_refusal() as why:
                await self.submitted(
                    ada, make_spec, "one", image=asked, validate_only=validate_only
                )
            assert (why[0].code, why[0].reason) == (C.INVALID_ARGUMENT, reason)

    async def test_names_are_the_launchers_until_an_admin_says_otherwise(
        self, platform: Any, make_spec: Any
    ) -> None:
        root, ada = await platform.caller("root"), await platform.caller("ada")
        for given, kept in (("", "default"), ("of-the-launcher", "of-the-launcher")):
            task = await self.submitted(ada, make_spec, f"a {kept}", image=given)
            assert task.spec.resource.image == kept
        await root.images.SetImage(image(is_default=True))
        platform.registries.digests[TORCH] = OLD
        task = await self.submitted(ada, make_spec, "b", image="")
        assert task.spec.resource.image == f"{TORCH}@{OLD}"

    async def test_registry_that_is_down_is_told_in_the_timeline(
        self, platform: Any, make_spec: Any
    ) -> None:
        root, ada = await platform.caller("root"), await platform.caller("ada")
        await root.images.SetImage(image())
        platform.registries.error = Unavailable("registry r.example did not answer in time")
        task = await self.submitted(ada, make_spec, "one")
        assert task.spec.resource.image == TORCH
        assert "could not be checked: registry r.example" in await self.story(ada, task.id)
        platform.registries.error = None
        platform.registries.digests[TORCH] = OLD
        again = await self.submitted(ada, make_spec, "two")  # a failure is not cached
        assert again.spec.resource.image == f"{TORCH}@{OLD}"

    @pytest.mark.parametrize("image_check", ["require"])
    async def test_registry_that_is_down_refuses_when_that_is_required(
        self, platform: Any, make_spec: Any, expect_refusal: Any, image_check: str
    ) -> None:
        root, ada = await platform.caller("root"), await platform.caller("ada")
        await root.images.SetImage(image())
        platform.registries.error = Unavailable("registry r.example is down")
        async with expect_refusal() as why:
            await self.submitted(ada, make_spec, "one")
        assert why[0].code is C.UNAVAILABLE
