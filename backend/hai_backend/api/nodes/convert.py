"""Nodes and groups as messages."""

from __future__ import annotations

from collections.abc import Iterable

from hai.v1 import node_pb2 as pb
from hai_backend.api.request.convert_time import timestamp
from hai_backend.domain.node import Node, NodeState

_STATES = {s: pb.NodeState.Value(f"NODE_STATE_{s.name}") for s in NodeState}


def node_to_proto(node: Node, tenants: Iterable[pb.NodeTenant], version: int) -> pb.Node:
    """A node and who holds it."""
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
        tenants=tenants,
        reason=node.why,
        update_time=timestamp(node.updated_at or None),
        version=version,
        mig_profile=node.mig,
        labels=dict(node.labels),
    )
