"""Encodes nodes as elements of WatchNodesResponse.nodes. Streams share the encoding of a version of a node.

A node has as many encodings as there are groups of callers who may see different tasks on it.
"""

from __future__ import annotations

from collections.abc import Callable

from hai.v1.node_service_pb2 import WatchNodesResponse
from hai_backend.api.nodes.convert import entry_to_proto
from hai_backend.api.nodes.tenants import Entry
from hai_backend.api.watch.wire import message_field


class NodeEncoder:
    """Keeps the encodings of the last version of each node."""

    def __init__(self) -> None:
        # by name: the version, and the encodings by whether the caller may see each tenant
        self._encoded: dict[str, tuple[int, dict[tuple[bool, ...], bytes]]] = {}

    def encode(self, version: int, entry: Entry, can_see_task: Callable[[int], bool]) -> bytes:
        """Return a node as an element of the response, without names that the caller may not see."""
        visible = tuple(can_see_task(tenant.task_id) for tenant in entry.tenants)
        known = self._encoded.get(entry.node.name)
        if known is None or known[0] != version:
            known = self._encoded[entry.node.name] = (version, {})
        if (field := known[1].get(visible)) is None:
            message = entry_to_proto(version, entry, can_see_task)
            field = message_field(
                WatchNodesResponse.NODES_FIELD_NUMBER, message.SerializeToString()
            )
            known[1][visible] = field
        return field
