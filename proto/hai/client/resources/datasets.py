"""Datasets: data that tasks read under a name and a version."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.dataset_pb2 import Dataset
from hai.v1.dataset_service_pb2 import (
    CreateDatasetRequest,
    DeleteDatasetRequest,
    GetDatasetRequest,
    ListDatasetsRequest,
)
from hai.v1.dataset_service_pb2_grpc import DatasetServiceStub

if TYPE_CHECKING:
    from hai.v1.dataset_service_pb2_grpc import DatasetServiceAsyncStub


class Datasets:
    """Calls about datasets that are visible to the caller."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> DatasetServiceAsyncStub:
        return self._transport.stub(DatasetServiceStub)

    async def list(self, name: str = "") -> Sequence[Dataset]:
        """Return the datasets of a name, or all, by name and version."""
        request = ListDatasetsRequest(name=name)
        return (await self._transport.unary(self._stub.ListDatasets, request, retry=True)).datasets

    async def get(self, name: str, version: str = "") -> Dataset:
        """Return one dataset."""
        request = GetDatasetRequest(name=name, version=version)
        return await self._transport.unary(self._stub.GetDataset, request, retry=True)

    async def create(self, dataset: Dataset) -> Dataset:
        """Add a dataset to the list."""
        request = CreateDatasetRequest(dataset=dataset)
        return await self._transport.unary(self._stub.CreateDataset, request)

    async def delete(self, name: str, version: str = "") -> None:
        """Remove a dataset from the list. Its files are kept."""
        request = DeleteDatasetRequest(name=name, version=version)
        await self._transport.unary(self._stub.DeleteDataset, request)
