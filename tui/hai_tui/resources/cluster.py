"""The list of nodes, and the queue in its order with the predicted starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hai_tui.resources.resource_spec import Answers, Field, ResourceSpec, Verb
from hai_tui.views import QUEUE_TASKS
from hai_tui.views.node_labels import LabelPatch, labels_text, parse_edited_labels
from hai_tui.views.nodes import NODES
from hai_tui.views.tasks import QUEUE

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Node


async def _label(client: Client, request: tuple[Node, LabelPatch]) -> Node:
    node, patch = request
    return await client.nodes.label(node.name, patch.labels, remove=patch.remove)


def _name_and_reason(node: Node, answers: Answers) -> tuple[str, str]:
    return node.name, answers.text("reason")


RESOURCES = (
    ResourceSpec(
        "nodes",
        NODES,
        lambda client: client.nodes.list(),
        (
            Verb(
                "x",
                "cordon",
                lambda client, request: client.nodes.cordon(*request),
                _name_and_reason,
                (Field("reason"),),
                right="manage_nodes",
            ),
            Verb(
                "u",
                "uncordon",
                lambda client, node: client.nodes.uncordon(node.name),
                right="manage_nodes",
            ),
            Verb(
                "D",
                "drain",
                lambda client, request: client.nodes.drain(*request),
                _name_and_reason,
                (Field("reason"),),
                needs_confirmation=True,
                right="manage_nodes",
            ),
            Verb(
                "L",
                "label",
                _label,
                lambda node, answers: (node, parse_edited_labels(node, answers.text("labels"))),
                (Field("labels", labels_text),),
                right="manage_nodes",
            ),
        ),
        opens=lambda node: f"node {node.name}",
    ),
    ResourceSpec(
        "queue",
        QUEUE,
        lambda client: client.tasks.queue(),
        opens=lambda task: f"task {task.id}",
        live=True,
        limit=QUEUE_TASKS,
    ),
)
