"""DatasetService: data that tasks read. A dataset that the caller may not see is reported as not found."""

from __future__ import annotations

import asyncio

from hai.v1 import dataset_pb2
from hai.v1 import dataset_service_pb2 as pb
from hai.v1.dataset_service_pb2_grpc import DatasetServiceServicer
from hai_backend.api.datasets.convert import DEFAULT_VERSION, dataset_from_proto, dataset_to_proto
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.auth.permissions import Identity, require_reach
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.catalog.dataset import Dataset, Visibility
from hai_backend.domain.errors import Conflict, Denied, NotFound
from hai_backend.store.base import Store


class DatasetService(DatasetServiceServicer):
    """See proto/hai/v1/dataset_service.proto for what each call means."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._write_lock = asyncio.Lock()

    async def ListDatasets(
        self, request: pb.ListDatasetsRequest, context: Context
    ) -> pb.ListDatasetsResponse:
        found = [d for d in await self._visible() if request.name in ("", d.name)]
        return pb.ListDatasetsResponse(datasets=map(dataset_to_proto, found))

    async def GetDataset(
        self, request: pb.GetDatasetRequest, context: Context
    ) -> dataset_pb2.Dataset:
        return dataset_to_proto(await self._find(request.name, request.version))

    async def CreateDataset(
        self, request: pb.CreateDatasetRequest, context: Context
    ) -> dataset_pb2.Dataset:
        identity = current_caller()
        dataset = dataset_from_proto(request.dataset, identity.name, self._clock.now())
        _require_may_create(identity, dataset)
        async with self._write_lock:
            if not await self._store.add_record(dataset):
                raise Conflict(f"dataset {dataset} already exists", reason="NAME_TAKEN")
        return dataset_to_proto(dataset)

    async def DeleteDataset(
        self, request: pb.DeleteDatasetRequest, context: Context
    ) -> pb.DeleteDatasetResponse:
        identity, dataset = current_caller(), await self._find(request.name, request.version)
        if dataset.owner != identity.name and not _manages(identity):
            raise Denied(f"{dataset} belongs to {dataset.owner}; only its owner may delete it")
        require_reach(identity, dataset.owner, str(dataset))
        await self._store.delete_record(dataset)
        return pb.DeleteDatasetResponse()

    async def _visible(self) -> list[Dataset]:
        identity = current_caller()
        return [d for d in await self._store.records(Dataset) if _may_see(identity, d)]

    async def _find(self, name: str, version: str) -> Dataset:
        version = version or DEFAULT_VERSION
        found = await self._store.records(Dataset, name=name, version=version)
        if found and _may_see(current_caller(), found[0]):
            return found[0]
        raise NotFound(f"dataset {name}:{version} not found; `hai dataset list` shows them")


def _manages(identity: Identity) -> bool:
    return identity.has_right(Right.MANAGE_STORAGE)


def _may_see(identity: Identity, dataset: Dataset) -> bool:
    if dataset.visibility is Visibility.PUBLIC or dataset.owner == identity.name:
        return True
    is_group_visible = dataset.visibility is Visibility.GROUP
    return _manages(identity) or (is_group_visible and dataset.user_group in identity.user.groups)


def _require_may_create(identity: Identity, dataset: Dataset) -> None:
    if _manages(identity):
        return
    if dataset.visibility is Visibility.PUBLIC:
        raise Denied(
            "only operators and users with the right manage_storage may create public datasets"
        )
    if dataset.user_group and dataset.user_group not in identity.user.groups:
        raise Denied(f"{identity.name} is not in the user group {dataset.user_group}")
