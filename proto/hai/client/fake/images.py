"""The image service of the fake server. Its registries know the images that a test puts into World.digests."""

from __future__ import annotations

from hai.client.errors import NotFound
from hai.client.fake.world import World, copy
from hai.v1 import image_service_pb2 as pb
from hai.v1.image_pb2 import Image, ImageCheck, Registry


class FakeImageService:
    """ImageService over a World; methods are named as in the contract."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListImages(self, request: pb.ListImagesRequest) -> pb.ListImagesResponse:
        return pb.ListImagesResponse(images=[i for _, i in sorted(self._world.images.items())])

    async def SetImage(self, request: pb.SetImageRequest) -> Image:
        for other in self._world.images.values():
            other.is_default = other.is_default and not request.image.is_default
        self._world.images[request.image.name] = copy(request.image)
        return copy(request.image)

    async def DeleteImage(self, request: pb.DeleteImageRequest) -> pb.DeleteImageResponse:
        if self._world.images.pop(request.name, None) is None:
            raise NotFound(f"there is no built-in image {request.name!r}")
        return pb.DeleteImageResponse()

    async def ListImageTags(self, request: pb.ListImageTagsRequest) -> pb.ListImageTagsResponse:
        repository = self._reference(request.image).rpartition(":")[0]
        begin = f"{repository}:"
        tags = [i.removeprefix(begin) for i in self._world.digests if i.startswith(begin)]
        return pb.ListImageTagsResponse(repository=repository, tags=tags)

    async def CheckImage(self, request: pb.CheckImageRequest) -> ImageCheck:
        reference = self._reference(request.image)
        if reference not in self._world.digests:
            raise NotFound(f"registry {reference.partition('/')[0]} has no image {reference}")
        digest = self._world.digests[reference]
        return ImageCheck(
            image=request.image,
            reference=reference,
            digest=digest,
            pinned=f"{reference}@{digest}",
        )

    def _reference(self, image: str) -> str:
        if "/" not in image:
            if image not in self._world.images:
                raise NotFound(f"there is no built-in image {image!r}")
            image = self._world.images[image].reference
        return image if ":" in image.rpartition("/")[2] else f"{image}:latest"

    async def ListRegistries(self, request: pb.ListRegistriesRequest) -> pb.ListRegistriesResponse:
        registries = [r for _, r in sorted(self._world.registries.items())]
        return pb.ListRegistriesResponse(registries=registries)

    async def SetRegistry(self, request: pb.SetRegistryRequest) -> Registry:
        """Keeps no password, only that there is one."""
        registry, before = (
            copy(request.registry),
            self._world.registries.get(request.registry.prefix),
        )
        same = before is not None and before.username == registry.username
        registry.has_password = (
            bool(request.password)
            if request.HasField("password")
            else (before is not None and same and before.has_password)
        )
        self._world.registries[registry.prefix] = registry
        return copy(registry)

    async def DeleteRegistry(self, request: pb.DeleteRegistryRequest) -> pb.DeleteRegistryResponse:
        if self._world.registries.pop(request.prefix, None) is None:
            raise NotFound(f"there is no registry {request.prefix!r}")
        return pb.DeleteRegistryResponse()
