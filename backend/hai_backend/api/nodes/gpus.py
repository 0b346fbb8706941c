"""Adds their real GPUs to the nodes that a caller asks for.

Watched nodes have none, because the state of GPUs changes all the time.
"""

from __future__ import annotations

from hai.v1 import node_pb2 as pb
from hai_backend.api.nodes.convert_gpus import gpus_to_proto
from hai_backend.api.nodes.tenants import Entry
from hai_backend.api.protocols import TaskManager
from hai_backend.controllers.metrics.gpus import GpuStates


class NodeGpus:
    def __init__(self, gpus: GpuStates, task_manager: TaskManager) -> None:
        self._gpus = gpus
        self._task_manager = task_manager

    async def refresh(self) -> None:
        """Read the GPUs. Must be called before `add`."""
        await self._gpus.refresh()

    def add(self, node: pb.Node, entry: Entry) -> pb.Node:
        """Add the GPUs of a node to its message, and return the message."""
        tasks = self._task_manager.unfinished()
        tenants = (
            (task, tenant.rank)
            for tenant in entry.tenants
            if (task := tasks.get(tenant.task_id)) is not None
            and task.run is not None
            and task.run.number == tenant.run
        )
        node.gpu_devices.extend(gpus_to_proto(self._gpus.of_node(node.name, tenants)))
        return node
