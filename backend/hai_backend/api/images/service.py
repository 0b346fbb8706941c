"""ImageService: built-in images, registries, and queries to registries. server/methods.py lists who may change them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hai.v1 import image_pb2
from hai.v1 import image_service_pb2 as pb
from hai.v1.image_service_pb2_grpc import ImageServiceServicer
from hai_backend.api.images.convert import (
    image_from_proto,
    image_to_proto,
    registry_from_proto,
    registry_to_proto,
)
from hai_backend.api.images.images import Images
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.domain.catalog.image import Image, Registry, repository_path
from hai_backend.domain.errors import NotFound
from hai_backend.store.base import Store


class ImageService(ImageServiceServicer):
    """See proto/hai/v1/image_service.proto for what each call means."""

    def __init__(self, store: Store, images: Images) -> None:
        self._store = store
        self._images = images
        self._write_lock = asyncio.Lock()

    async def ListImages(
        self, request: pb.ListImagesRequest, context: Context
    ) -> pb.ListImagesResponse:
        found = await self._images.visible(current_caller())
        return pb.ListImagesResponse(images=map(image_to_proto, found))

    async def SetImage(self, request: pb.SetImageRequest, context: Context) -> image_pb2.Image:
        image = image_from_proto(request.image)
        async with self._write_lock:
            try:
                await self._store.save_record(image)
                if image.is_default:
                    await self._clear_other_defaults(image.name)
            finally:
                self._images.invalidate()
        return image_to_proto(image)

    async def _clear_other_defaults(self, except_name: str) -> None:
        for other in await self._store.records(Image):
            if other.is_default and other.name != except_name:
                await self._store.save_record(replace(other, is_default=False))

    async def DeleteImage(
        self, request: pb.DeleteImageRequest, context: Context
    ) -> pb.DeleteImageResponse:
        found = await self._store.delete_record(Image(request.name, ""))
        self._images.invalidate()
        if not found:
            raise NotFound(f"built-in image {request.name!r} not found; `hai image list` shows all")
        return pb.DeleteImageResponse()

    async def ListImageTags(
        self, request: pb.ListImageTagsRequest, context: Context
    ) -> pb.ListImageTagsResponse:
        found = await self._images.find(current_caller(), request.image)
        tags = await self._images.tags(found)
        return pb.ListImageTagsResponse(repository=repository_path(found), tags=tags)

    async def CheckImage(
        self, request: pb.CheckImageRequest, context: Context
    ) -> image_pb2.ImageCheck:
        found = await self._images.find(current_caller(), request.image)
        digest = await self._images.digest(found)
        return image_pb2.ImageCheck(
            image=request.image,
            reference=str(found),
            digest=digest,
            pinned=str(replace(found, digest=digest)),
        )

    async def ListRegistries(
        self, request: pb.ListRegistriesRequest, context: Context
    ) -> pb.ListRegistriesResponse:
        found = await self._store.records(Registry)
        return pb.ListRegistriesResponse(registries=map(registry_to_proto, found))

    async def SetRegistry(
        self, request: pb.SetRegistryRequest, context: Context
    ) -> image_pb2.Registry:
        async with self._write_lock:
            password = request.password
            if not request.HasField("password"):
                password = await self._password(request.registry)
            registry = registry_from_proto(request.registry, password)
            await self._store.save_record(registry)
        return registry_to_proto(registry)

    async def _password(self, registry: image_pb2.Registry) -> str:
        """Return the stored password of the same account. Another account must not get it."""
        prefix, username = registry.prefix, registry.username
        existing = await self._store.records(Registry, prefix=prefix, username=username)
        return existing[0].password if existing else ""

    async def DeleteRegistry(
        self, request: pb.DeleteRegistryRequest, context: Context
    ) -> pb.DeleteRegistryResponse:
        if not await self._store.delete_record(Registry(request.prefix)):
            raise NotFound(f"registry {request.prefix!r} not found; `hai registry list` shows all")
        return pb.DeleteRegistryResponse()
