"""Converts nodes to messages."""

from __future__ import annotations

from collections.abc import Callable

from hai.v1 import node_pb2 as pb
from hai_backend.api.nodes.tenants import Entry, Tenant
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.domain.node import NodeState

_STATES = {s: pb.NodeState.Value(f"NODE_STATE_{s.name}") for s in NodeState}


def entry_to_proto(version: int, entry: Entry, can_see_task: Callable[[int], bool]) -> pb.Node:
    """Convert a node and its tenants. Names of tasks that the caller may not see are left out."""
    node = entry.node
    return pb.Node(
        name=node.name,
        group=node.group,
        zone=node.zone,
        state=_STATES[node.state],
        cordoned=node.closed,
        gpus=node.gpus,
        gpus_simulated=node.gpus_simulated,
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        topology=node.topology,
        tenants=[_tenant_to_proto(tenant, can_see_task) for tenant in entry.tenants],
        reason=node.why,
        update_time=to_timestamp(node.updated_at or None),
        version=version,
        mig_profile=node.mig,
        labels=dict(node.labels),
    )


def _tenant_to_proto(tenant: Tenant, can_see_task: Callable[[int], bool]) -> pb.NodeTenant:
    return pb.NodeTenant(
        task_id=tenant.task_id,
        task_name=tenant.name if can_see_task(tenant.task_id) else "",
        user=tenant.user,
        run=tenant.run,
        rank=tenant.rank,
        silent_since_time=to_timestamp(tenant.silent_since),
    )
