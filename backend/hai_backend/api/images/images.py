"""Which image a caller means and may use, what its registry says of it, and what a task is pinned to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from hai.client.taskfile.validation.violations import nearest
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.catalog.image import (
    Image,
    ImageReference,
    Registry,
    full_reference,
    has_prefix,
    registry_of,
    repository_path,
)
from hai_backend.domain.errors import Denied, Invalid, NotFound, Unavailable, Violation
from hai_backend.domain.spec import TaskSpec
from hai_backend.store.base import Store

_FRESH_SECONDS = 30.0  # a sweep of a thousand tasks asks the registry once
_REMEMBERED = 1000


class Checking(StrEnum):
    """What a submission does about its image."""

    OFF = "off"  # nothing: the launcher runs none
    WARN = "warn"  # the image must be allowed and be there; when the registry is down, its timeline says so
    REQUIRE = "require"  # when the registry is down, the task is refused


class Registries(Protocol):
    """The verbs of registry.client.RegistryClient."""

    async def digest(self, image: ImageReference, registry: Registry) -> str: ...
    async def tags(self, image: ImageReference, registry: Registry) -> tuple[str, ...]: ...


class Images:
    """Built-in images and registries. Only the server that leads has one, so what it has read stays true."""

    def __init__(
        self,
        store: Store,
        registries: Registries,
        clock: Clock,
        checking: Checking = Checking.OFF,
        launchers: frozenset[str] = frozenset({"default"}),  # names that the launcher knows itself
    ) -> None:
        self._store = store
        self._registries = registries
        self._clock = clock
        self._checking = checking
        self._launchers = launchers
        self._built_in: list[Image] | None = None  # None: to be read again
        self._changes = 0
        self._known: dict[str, tuple[float, asyncio.Task[str]]] = {}

    async def built_in(self) -> list[Image]:
        """All, by name; read once, for every submission asks."""
        if self._built_in is not None:
            return self._built_in
        changes = self._changes
        found = await self._store.records(Image)
        if changes == self._changes:
            self._built_in = found
        return found

    def changed(self) -> None:
        """A built-in image was set or deleted."""
        self._built_in = None
        self._changes += 1

    async def visible(self, identity: Identity) -> list[Image]:
        """Built-in images that the caller may use, by name; all of them for who may change them."""
        return [i for i in await self.built_in() if _may_use(identity, i)]

    async def find(self, identity: Identity, name: str) -> ImageReference:
        """What a name or a registry path stands for. Raises NotFound, Denied or Invalid."""
        mine = await self.visible(identity)
        if "/" not in name:
            return full_reference(_built_in(mine, name).reference)
        found = full_reference(name)
        if any(replace(found, digest="") == full_reference(i.reference) for i in mine):
            return found  # as `hai describe` writes what a task was pinned to
        allowed = identity.arguments(Right.IMAGE)
        if not identity.has_right(Right.MANAGE_IMAGES) and not any(
            has_prefix(found, prefix) for prefix in allowed
        ):
            raise Denied(
                f"{identity.name} may not use images of {repository_path(found)}; "
                f"an admin allows it with `hai right grant {identity.name} image:{found.registry}/…`, "
                "and `hai image list` shows the built-in ones",
                reason="IMAGE_NOT_ALLOWED",
            )
        return found

    async def digest(self, image: ImageReference) -> str:
        """What an image is now, or was a moment ago. Raises NotFound, Denied or Unavailable."""
        now, name = self._clock.now(), str(image)
        until, asking = self._known.get(name, (0.0, None))
        if asking is None or now >= until:
            asking = asyncio.ensure_future(self._ask(image))
            self._remember(name, now + _FRESH_SECONDS, asking)
        try:
            return await asyncio.shield(asking)
        except BaseException:
            if asking.done():  # not where only the caller has left
                self._known.pop(name, None)
            raise

    async def tags(self, image: ImageReference) -> tuple[str, ...]:
        """Tags of the image's repository. Raises NotFound, Denied or Unavailable."""
        return await self._registries.tags(image, await self._registry_of(image))

    async def pin(self, identity: Identity, spec: TaskSpec) -> tuple[TaskSpec, str]:
        """The task with its image as it is now, and what its timeline says of that. Raises Invalid or Unavailable."""
        if self._checking is Checking.OFF or await self._is_launchers(spec.resource.image):
            return spec, ""
        try:
            found = await self.find(identity, spec.resource.image)
            pinned = str(replace(found, digest=await self.digest(found)))
            note = f"image {spec.resource.image} is {pinned}"
        except (NotFound, Denied) as error:
            violation = Violation("resource.image", str(error))
            raise Invalid((violation,), reason=error.reason) from error
        except Unavailable as error:
            if self._checking is Checking.REQUIRE:
                raise
            pinned, note = str(found), f"image {found} could not be checked: {error}"
        return replace(spec, resource=replace(spec.resource, image=pinned)), note

    async def _is_launchers(self, name: str) -> bool:
        """A name means what the launcher is set to, until an admin says otherwise."""
        return name in self._launchers and not any(
            image.name == name or (image.is_default and name == "default")
            for image in await self.built_in()
        )

    async def _ask(self, image: ImageReference) -> str:
        return await self._registries.digest(image, await self._registry_of(image))

    async def _registry_of(self, image: ImageReference) -> Registry:
        return registry_of(image, await self._store.records(Registry))

    def _remember(self, name: str, until: float, asking: asyncio.Task[str]) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[name] = (until, asking)


def _may_use(identity: Identity, image: Image) -> bool:
    free = not image.user_groups or identity.has_right(Right.MANAGE_IMAGES)
    return free or not set(image.user_groups).isdisjoint(identity.user.groups)


def _built_in(images: Iterable[Image], name: str) -> Image:
    known = {image.name: image for image in images}
    default = next((image for image in known.values() if image.is_default), None)
    found = known.get(name) or (default if name == "default" else None)
    if found is None:
        raise NotFound(
            f"there is no built-in image {name[:63]!r} for you; "
            f"`hai image list` shows them{nearest(name, known)}",
            reason="NO_SUCH_IMAGE",
        )
    return found
