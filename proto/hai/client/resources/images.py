"""Container images: built-in ones, registries, and images in registries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.image_pb2 import Image, ImageCheck, Registry
from hai.v1.image_service_pb2 import (
    CheckImageRequest,
    DeleteImageRequest,
    DeleteRegistryRequest,
    ListImagesRequest,
    ListImageTagsRequest,
    ListImageTagsResponse,
    ListRegistriesRequest,
    SetImageRequest,
    SetRegistryRequest,
)
from hai.v1.image_service_pb2_grpc import ImageServiceStub

if TYPE_CHECKING:
    from hai.v1.image_service_pb2_grpc import ImageServiceAsyncStub


class Images:
    """Calls about images in which tasks may run."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> ImageServiceAsyncStub:
        return self._transport.stub(ImageServiceStub)

    async def list(self) -> Sequence[Image]:
        """Return the built-in images, by name."""
        request = ListImagesRequest()
        return (await self._transport.unary(self._stub.ListImages, request, retry=True)).images

    async def set(self, image: Image) -> Image:
        """Add or replace a built-in image."""
        request = SetImageRequest(image=image)
        return await self._transport.unary(self._stub.SetImage, request, retry=True)

    async def delete(self, name: str) -> None:
        """Remove a built-in image."""
        await self._transport.unary(self._stub.DeleteImage, DeleteImageRequest(name=name))

    async def tags(self, image: str) -> ListImageTagsResponse:
        """Return the tags in the repository of an image."""
        request = ListImageTagsRequest(image=image)
        return await self._transport.unary(self._stub.ListImageTags, request, retry=True)

    async def check(self, image: str) -> ImageCheck:
        """Check an image in its registry now."""
        request = CheckImageRequest(image=image)
        return await self._transport.unary(self._stub.CheckImage, request, retry=True)

    async def registries(self) -> Sequence[Registry]:
        """Return the registries, by prefix, without their passwords."""
        call, request = self._stub.ListRegistries, ListRegistriesRequest()
        return (await self._transport.unary(call, request, retry=True)).registries

    async def set_registry(self, registry: Registry, password: str | None = None) -> Registry:
        """Add or replace a registry. Without a password the stored one is kept."""
        request = SetRegistryRequest(registry=registry, password=password)
        return await self._transport.unary(self._stub.SetRegistry, request, retry=True)

    async def delete_registry(self, prefix: str) -> None:
        """Remove a registry and its password."""
        request = DeleteRegistryRequest(prefix=prefix)
        await self._transport.unary(self._stub.DeleteRegistry, request)
