"""Resolves images: which one a name refers to, who may use it, its digest in the registry, and pins of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from hai.client.taskfile.validation.violations import suggestion_text
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

_CACHE_SECONDS = 30.0  # a sweep of a thousand tasks queries the registry once
_MAX_CACHED = 1000


class ImageCheck(StrEnum):
    """How a submission checks its image."""

    OFF = "off"  # not at all: the launcher runs no images
    WARN = "warn"  # the image must be allowed and exist; a registry that is down is only reported
    REQUIRE = "require"  # like WARN, but the task is refused if the registry is down


class Registries(Protocol):
    """The methods of registry.client.RegistryClient."""

    async def digest(self, image: ImageReference, registry: Registry) -> str: ...
    async def tags(self, image: ImageReference, registry: Registry) -> tuple[str, ...]: ...


class Images:
    """Built-in images and registries. Only the leading server has an instance, so the cache of images stays valid."""

    def __init__(
        self,
        store: Store,
        registries: Registries,
        clock: Clock,
        check: ImageCheck = ImageCheck.OFF,
        launcher_names: frozenset[str] = frozenset({"default"}),
    ) -> None:
        self._store = store
        self._registries = registries
        self._clock = clock
        self._check = check
        self._launcher_names = launcher_names  # names that the launcher resolves itself
        self._built_in: list[Image] | None = None  # None after a change
        self._version = 0
        self._digests: dict[str, tuple[float, asyncio.Task[str]]] = {}

    async def built_in(self) -> list[Image]:
        """Return all built-in images by name. They are cached, because every submission needs them."""
        if self._built_in is not None:
            return self._built_in
        version = self._version
        images = await self._store.records(Image)
        if version == self._version:
            self._built_in = images
        return images

    def invalidate(self) -> None:
        """Drop the cache after a change of built-in images."""
        self._built_in = None
        self._version += 1

    async def visible(self, identity: Identity) -> list[Image]:
        """Return the built-in images that the caller may use, by name. Who may change images may use all."""
        return [i for i in await self.built_in() if _may_use(identity, i)]

    async def find(self, identity: Identity, name: str) -> ImageReference:
        """Resolve a name or a registry path. Raises NotFound, Denied or Invalid."""
        visible_images = await self.visible(identity)
        if "/" not in name:
            return full_reference(_find_built_in(visible_images, name).reference)
        reference = full_reference(name)
        without_digest = replace(reference, digest="")
        if any(without_digest == full_reference(i.reference) for i in visible_images):
            return reference  # the form in which `hai describe` prints a built-in image
        allowed = identity.arguments(Right.IMAGE)
        if not identity.has_right(Right.MANAGE_IMAGES) and not any(
            has_prefix(reference, prefix) for prefix in allowed
        ):
            raise Denied(
                f"{identity.name} may not use images of {repository_path(reference)}; "
                f"an admin allows it with `hai right grant {identity.name} image:{reference.registry}/…`, "
                "and `hai image list` shows the built-in ones",
                reason="IMAGE_NOT_ALLOWED",
            )
        return reference

    async def digest(self, image: ImageReference) -> str:
        """Return the digest of an image, from the cache if it is fresh. Raises NotFound, Denied or Unavailable."""
        now, name = self._clock.now(), str(image)
        fresh_until, query = self._digests.get(name, (0.0, None))
        if query is None or now >= fresh_until:
            query = asyncio.ensure_future(self._query_digest(image))
            self._cache_digest(name, now + _CACHE_SECONDS, query)
        try:
            return await asyncio.shield(query)
        except BaseException:
            if query.done():  # else only the caller was cancelled
                self._digests.pop(name, None)
            raise

    async def tags(self, image: ImageReference) -> tuple[str, ...]:
        """Return the tags in the repository of an image. Raises NotFound, Denied or Unavailable."""
        return await self._registries.tags(image, await self._registry_of(image))

    async def pin(self, identity: Identity, spec: TaskSpec) -> tuple[TaskSpec, str]:
        """Return the spec with the digest of its image, and a note for the timeline. Raises Invalid or Unavailable."""
        if self._check is ImageCheck.OFF or await self._is_launcher_name(spec.resource.image):
            return spec, ""
        try:
            reference = await self.find(identity, spec.resource.image)
            pinned = str(replace(reference, digest=await self.digest(reference)))
            note = f"image {spec.resource.image} is {pinned}"
        except (NotFound, Denied) as error:
            violation = Violation("resource.image", str(error))
            raise Invalid((violation,), reason=error.reason) from error
        except Unavailable as error:
            if self._check is ImageCheck.REQUIRE:
                raise
            pinned, note = str(reference), f"image {reference} could not be checked: {error}"
        return replace(spec, resource=replace(spec.resource, image=pinned)), note

    async def _is_launcher_name(self, name: str) -> bool:
        """Say whether the launcher resolves a name. A built-in image of the same name has precedence."""
        return name in self._launcher_names and not any(
            image.name == name or (image.is_default and name == "default")
            for image in await self.built_in()
        )

    async def _query_digest(self, image: ImageReference) -> str:
        return await self._registries.digest(image, await self._registry_of(image))

    async def _registry_of(self, image: ImageReference) -> Registry:
        return registry_of(image, await self._store.records(Registry))

    def _cache_digest(self, name: str, fresh_until: float, query: asyncio.Task[str]) -> None:
        if len(self._digests) >= _MAX_CACHED:
            self._digests.clear()
        self._digests[name] = (fresh_until, query)


def _may_use(identity: Identity, image: Image) -> bool:
    is_public = not image.user_groups or identity.has_right(Right.MANAGE_IMAGES)
    return is_public or not set(image.user_groups).isdisjoint(identity.user.groups)


def _find_built_in(images: Iterable[Image], name: str) -> Image:
    by_name = {image.name: image for image in images}
    default = next((image for image in by_name.values() if image.is_default), None)
    image = by_name.get(name) or (default if name == "default" else None)
    if image is None:
        raise NotFound(
            f"built-in image {name[:63]!r} not found; "
            f"`hai image list` shows them{suggestion_text(name, by_name)}",
            reason="NO_SUCH_IMAGE",
        )
    return image
