"""`hai node …` describes the state of a changed node."""

from __future__ import annotations

import pytest

from hai.v1.node_pb2 import Node
from hai_tui.cli.commands.cluster.nodes import _uncordoned


@pytest.mark.parametrize(
    ("node", "said"),
    [
        pytest.param(Node(state="NODE_STATE_READY"), "takes work again", id="ready"),
        pytest.param(
            Node(state="NODE_STATE_NOT_READY", reason="kubelet stopped"),
            "NOT_READY: kubelet stopped",
            id="not ready",
        ),
    ],
)
def test_a_node_is_said_to_take_work_only_when_it_does(node: Node, said: str) -> None:
    assert _uncordoned(node) == said
