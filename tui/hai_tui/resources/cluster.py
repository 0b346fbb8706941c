"""Nodes as a list, and the queue in order: who stands behind whom, and when each may start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hai_tui.resources.resource_spec import Answers, Field, ResourceSpec, Verb
from hai_tui.views import QUEUE_TASKS
from hai_tui.views.node_labels import edited, labels_of
from hai_tui.views.nodes import NODES
from hai_tui.views.tasks import QUEUE

if TYPE_CHECKING:
    from hai.v1.node_pb2 import Node


def _with_reason(node: Node, answers: Answers) -> tuple[str, str]:
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
                lambda client, made: client.nodes.cordon(*made),
                _with_reason,
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
                lambda client, made: client.nodes.drain(*made),
                _with_reason,
                (Field("reason"),),
                needs_confirmation=True,
                right="manage_nodes",
            ),
            Verb(
                "L",
                "label",
                lambda client, made: client.nodes.label(
                    made[0], made[1].labels, remove=made[1].remove
                ),
                lambda node, answers: (node.name, edited(node, answers.text("labels"))),
                (Field("labels", labels_of),),
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
        most=QUEUE_TASKS,
    ),
)
