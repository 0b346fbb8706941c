"""ImageService: built-in images, registries, and what registries say. Who may change them stands in
server/methods.py."""

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
from hai_backend.api.server import caller
from hai_backend.api.server.handler_wrapper import Context
from hai_backend.domain.catalog.image import Image, Registry, repository_path
from hai_backend.domain.errors import NotFound
from hai_backend.store.base import Store


class ImageService(ImageServiceServicer):
    """See proto/hai/v1/image_service.proto for what each call means."""

    def __init__(self, store: Store, images: Images) -> None:
        self._store = store
        self._images = images
        self._setting = asyncio.Lock()

    async def ListImages(
        self, request: pb.ListImagesRequest, context: Context
    ) -> pb.ListImagesResponse:
        found = await self._images.visible(caller.current())
        return pb.ListImagesResponse(images=map(image_to_proto, found))

    async def SetImage(self, request: pb.SetImageRequest, context: Context) -> image_pb2.Image:
        image = image_from_proto(request.image)
        async with self._setting:
            try:
                await self._store.save_record(image)
                if image.is_default:
                    await self._end_defaults(image.name)
            finally:
                self._images.changed()
        return image_to_proto(image)

    async def _end_defaults(self, but: str) -> None:
        for other in await self._store.records(Image):
            if other.is_default and other.name != but:
                await self._store.save_record(replace(other, is_default=False))

    async def DeleteImage(
        self, request: pb.DeleteImageRequest, context: Context
    ) -> pb.DeleteImageResponse:
        found = await self._store.delete_record(Image(request.name, ""))
        self._images.changed()
        if not found:
            raise NotFound(
                f"there is no built-in image {request.name!r}; `hai image list` shows all"
            )
        return pb.DeleteImageResponse()

    async def ListImageTags(
        self, request: pb.ListImageTagsRequest, context: Context
    ) -> pb.ListImageTagsResponse:
        found = await self._images.find(caller.current(), request.image)
        tags = await self._images.tags(found)
        return pb.ListImageTagsResponse(repository=repository_path(found), tags=tags)

    async def CheckImage(
        self, request: pb.CheckImageRequest, context: Context
    ) -> image_pb2.ImageCheck:
        found = await self._images.find(caller.current(), request.image)
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
        async with self._setting:
            password = request.password
            if not request.HasField("password"):
                password = await self._password(request.registry)
            registry = registry_from_proto(request.registry, password)
            await self._store.save_record(registry)
        return registry_to_proto(registry)

    async def _password(self, registry: image_pb2.Registry) -> str:
        """The stored one, of the same account: another account gets no password that it was not given."""
        prefix, username = registry.prefix, registry.username
        known = await self._store.records(Registry, prefix=prefix, username=username)
        return known[0].password if known else ""

    async def DeleteRegistry(
        self, request: pb.DeleteRegistryRequest, context: Context
    ) -> pb.DeleteRegistryResponse:
        if not await self._store.delete_record(Registry(request.prefix)):
            raise NotFound(
                f"there is no registry {request.prefix!r}; `hai registry list` shows all"
            )
        return pb.DeleteRegistryResponse()
