"""The services of the fake server for artifacts, images, storage and ports. The caller sees all of them."""

from __future__ import annotations

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import FakeService, copy
from hai.v1 import artifact_service_pb2 as artifacts_pb
from hai.v1 import image_service_pb2 as images_pb
from hai.v1 import port_service_pb2 as ports_pb
from hai.v1 import storage_service_pb2 as storage_pb
from hai.v1.artifact_pb2 import Artifact, ArtifactDirection, TaskArtifact
from hai.v1.image_pb2 import Image, ImageCheck, Registry
from hai.v1.port_pb2 import Port
from hai.v1.storage_pb2 import (
    MOUNT_ACTION_ADD,
    MOUNT_ACTION_REMOVE,
    MOUNT_KIND_HOST_PATH,
    Mount,
    MountRule,
)

Key = tuple[str, str, str]
_Reference = artifacts_pb.GetArtifactRequest | artifacts_pb.DeleteArtifactRequest | Artifact


class FakeArtifactService(FakeService):
    async def ListArtifacts(
        self, request: artifacts_pb.ListArtifactsRequest
    ) -> artifacts_pb.ListArtifactsResponse:
        artifacts = [a for _, a in sorted(self._world.artifacts.items())]
        found = [a for a in artifacts if request.name in ("", a.name)]
        return artifacts_pb.ListArtifactsResponse(
            artifacts=[a for a in found if request.user_group in ("", a.user_group)]
        )

    async def GetArtifact(self, request: artifacts_pb.GetArtifactRequest) -> Artifact:
        return copy(self._find(self._key(request)))

    async def CreateArtifact(self, request: artifacts_pb.CreateArtifactRequest) -> Artifact:
        new = copy(request.artifact)
        new.version, new.owner = new.version or "default", self._world.user
        if self._key(new) in self._world.artifacts:
            raise Conflict(f"there is an artifact {new.name}:{new.version} already")
        new.create_time.CopyFrom(self._world.time())
        new.update_time.CopyFrom(self._world.time())
        self._world.artifacts[self._key(new)] = new
        return copy(new)

    async def UpdateArtifact(self, request: artifacts_pb.UpdateArtifactRequest) -> Artifact:
        stored, requested = self._find(self._key(request.artifact)), request.artifact
        stored.type, stored.location = requested.type, requested.location
        stored.description = requested.description
        stored.update_time.CopyFrom(self._world.time())
        return copy(stored)

    async def DeleteArtifact(
        self, request: artifacts_pb.DeleteArtifactRequest
    ) -> artifacts_pb.DeleteArtifactResponse:
        key = self._key(request)
        self._find(key)
        del self._world.artifacts[key]
        mapped = self._world.task_artifacts
        for mapping in [m for m, artifact in mapped.items() if artifact == key]:
            del mapped[mapping]
        return artifacts_pb.DeleteArtifactResponse()

    async def ListTaskArtifacts(
        self, request: artifacts_pb.ListTaskArtifactsRequest
    ) -> artifacts_pb.ListTaskArtifactsResponse:
        id = self._world.task(request.task_id).id
        mapped = sorted(m for m in self._world.task_artifacts if m[0] == id)
        return artifacts_pb.ListTaskArtifactsResponse(
            artifacts=[self._task_artifact(mapping) for mapping in mapped]
        )

    async def MapArtifact(self, request: artifacts_pb.MapArtifactRequest) -> TaskArtifact:
        task = self._world.task(request.task_id)
        space = request.user_group or f"~{task.user}"
        key = (space, request.name, request.version or "default")
        self._find(key)
        self._world.task_artifacts[task.id, request.direction] = key
        return self._task_artifact((task.id, request.direction))

    async def UnmapArtifact(
        self, request: artifacts_pb.UnmapArtifactRequest
    ) -> artifacts_pb.UnmapArtifactResponse:
        for task_id, direction in list(self._world.task_artifacts):
            if task_id == request.task_id and request.direction in (0, direction):
                del self._world.task_artifacts[task_id, direction]
        return artifacts_pb.UnmapArtifactResponse()

    def _task_artifact(self, mapping: tuple[int, ArtifactDirection.ValueType]) -> TaskArtifact:
        artifact = self._find(self._world.task_artifacts[mapping])
        return TaskArtifact(task_id=mapping[0], direction=mapping[1], artifact=artifact)

    def _key(self, reference: _Reference) -> Key:
        space = reference.user_group or f"~{reference.owner or self._world.user}"
        return space, reference.name, reference.version or "default"

    def _find(self, key: Key) -> Artifact:
        if key not in self._world.artifacts:
            raise NotFound(f"there is no artifact {key[1]}:{key[2]} in {key[0]}")
        return self._world.artifacts[key]


class FakeImageService(FakeService):
    async def ListImages(
        self, request: images_pb.ListImagesRequest
    ) -> images_pb.ListImagesResponse:
        return images_pb.ListImagesResponse(
            images=[i for _, i in sorted(self._world.images.items())]
        )

    async def SetImage(self, request: images_pb.SetImageRequest) -> Image:
        for other in self._world.images.values():
            other.is_default = other.is_default and not request.image.is_default
        self._world.images[request.image.name] = copy(request.image)
        return copy(request.image)

    async def DeleteImage(
        self, request: images_pb.DeleteImageRequest
    ) -> images_pb.DeleteImageResponse:
        if self._world.images.pop(request.name, None) is None:
            raise NotFound(f"there is no built-in image {request.name!r}")
        return images_pb.DeleteImageResponse()

    async def ListImageTags(
        self, request: images_pb.ListImageTagsRequest
    ) -> images_pb.ListImageTagsResponse:
        repository = self._reference(request.image).rpartition(":")[0]
        begin = f"{repository}:"
        tags = [i.removeprefix(begin) for i in self._world.digests if i.startswith(begin)]
        return images_pb.ListImageTagsResponse(repository=repository, tags=tags)

    async def CheckImage(self, request: images_pb.CheckImageRequest) -> ImageCheck:
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

    async def ListRegistries(
        self, request: images_pb.ListRegistriesRequest
    ) -> images_pb.ListRegistriesResponse:
        registries = [r for _, r in sorted(self._world.registries.items())]
        return images_pb.ListRegistriesResponse(registries=registries)

    async def SetRegistry(self, request: images_pb.SetRegistryRequest) -> Registry:
        """Store only whether there is a password."""
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

    async def DeleteRegistry(
        self, request: images_pb.DeleteRegistryRequest
    ) -> images_pb.DeleteRegistryResponse:
        if self._world.registries.pop(request.prefix, None) is None:
            raise NotFound(f"there is no registry {request.prefix!r}")
        return images_pb.DeleteRegistryResponse()


class FakeStorageService(FakeService):
    async def ListMounts(
        self, request: storage_pb.ListMountsRequest
    ) -> storage_pb.ListMountsResponse:
        task_user = self._world.task(request.task_id).user if request.task_id else ""
        user = task_user or request.user or self._world.user
        owners = {user, *self._world.groups_of(user), "public"}
        rules = [r for r in self._world.mount_rules.values() if owners & set(r.owners)]
        removed = {r.mount_path for r in rules if r.action == MOUNT_ACTION_REMOVE}
        added = [r for r in rules if r.action == MOUNT_ACTION_ADD and r.mount_path not in removed]
        return storage_pb.ListMountsResponse(
            mounts=[_mount(rule, user) for rule in sorted(added, key=lambda r: r.mount_path)]
        )

    async def ListMountRules(
        self, request: storage_pb.ListMountRulesRequest
    ) -> storage_pb.ListMountRulesResponse:
        return storage_pb.ListMountRulesResponse(rules=self._world.mount_rules.values())

    async def CreateMountRule(
        self, request: storage_pb.CreateMountRuleRequest
    ) -> storage_pb.CreateMountRuleResponse:
        rule, rules = copy(request.rule), self._world.mount_rules
        rule.id = 1 + max(rules, default=0)
        rule.action = rule.action or MOUNT_ACTION_ADD
        rule.kind = rule.kind or MOUNT_KIND_HOST_PATH
        warnings = [
            f"rule {r.id} mounts {r.mount_path}, too" for r in rules.values() if _conflicts(r, rule)
        ]
        if warnings and not request.force:
            raise Conflict(warnings[0])
        if not request.validate_only:
            rules[rule.id] = rule
        return storage_pb.CreateMountRuleResponse(rule=rule, warnings=warnings)

    async def DeleteMountRule(
        self, request: storage_pb.DeleteMountRuleRequest
    ) -> storage_pb.DeleteMountRuleResponse:
        if self._world.mount_rules.pop(request.id, None) is None:
            raise NotFound(f"there is no rule {request.id}")
        return storage_pb.DeleteMountRuleResponse()


def _conflicts(one: MountRule, other: MountRule) -> bool:
    both = one.action == other.action == MOUNT_ACTION_ADD
    return both and one.mount_path == other.mount_path and bool(set(one.owners) & set(other.owners))


def _mount(rule: MountRule, user: str) -> Mount:
    return Mount(
        mount_path=rule.mount_path.replace("{user.name}", user),
        kind=rule.kind,
        source=rule.source.replace("{user.name}", user),
        writable=rule.writable,
    )


_FIRST_PORT = 30_000


class FakePortService(FakeService):
    async def ListPorts(self, request: ports_pb.ListPortsRequest) -> ports_pb.ListPortsResponse:
        user = request.user or self._world.user
        ports = [p for _, p in sorted(self._world.ports.items()) if user in ("*", p.user)]
        return ports_pb.ListPortsResponse(ports=ports)

    async def CreatePort(self, request: ports_pb.CreatePortRequest) -> Port:
        port, ports = copy(request.port), self._world.ports
        port.user = port.user or self._world.user
        self._require_free(port)
        if port.node_port in ports:
            raise Conflict(f"port {port.node_port} is already reserved")
        free_ports = (n for n in range(_FIRST_PORT, _FIRST_PORT + len(ports) + 1) if n not in ports)
        port.node_port = port.node_port or next(free_ports)
        port.create_time.CopyFrom(self._world.time())
        ports[port.node_port] = port
        return copy(port)

    async def BindPort(self, request: ports_pb.BindPortRequest) -> Port:
        bound = copy(self._find(request.node_port))
        bound.task_name, bound.service = request.task_name, request.service
        self._require_free(bound)
        self._world.ports[bound.node_port] = bound
        return copy(bound)

    async def DeletePort(self, request: ports_pb.DeletePortRequest) -> ports_pb.DeletePortResponse:
        del self._world.ports[self._find(request.node_port).node_port]
        return ports_pb.DeletePortResponse()

    def _find(self, number: int) -> Port:
        if number not in self._world.ports:
            raise NotFound(f"there is no port {number}")
        return self._world.ports[number]

    def _require_free(self, port: Port) -> None:
        target = (port.user, port.task_name, port.service)
        for other in self._world.ports.values():
            same = (other.user, other.task_name, other.service) == target
            if same and other.node_port != port.node_port:
                raise Conflict(f"service {port.service} has port {other.node_port} already")
