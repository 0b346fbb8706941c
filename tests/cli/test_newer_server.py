"""States and kinds that only a newer server knows are shown as unknown."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from hai.client.text.formatting import enum_name
from hai.v1.artifact_pb2 import TaskArtifact
from hai.v1.container_pb2 import ServiceStatus
from hai.v1.dataset_pb2 import Dataset
from hai.v1.node_pb2 import Node
from hai.v1.storage_pb2 import Mount, MountRule
from hai.v1.task_pb2 import TASK_STATE_FINISHED, TASK_STATE_RUNNING, Rank, Run, Task, TaskState
from hai.v1.user_pb2 import Token, User
from hai_jupyter.live.rows import node_row, task_row
from hai_tui.formatting.table import View, cells
from hai_tui.screens.task.text import rank_state_name, run_state_name
from hai_tui.views import accounts, artifacts, containers, nodes, storage, tasks

TOMORROWS = 99


def of_tomorrow(kind: type[Message], **fields: Any) -> Any:
    """Return a message whose enums all have a value that this version does not know."""
    made = kind(**fields)
    for field in kind.DESCRIPTOR.fields:
        if field.enum_type is not None and field.name not in fields:
            setattr(made, field.name, TOMORROWS)
    return made


@pytest.mark.parametrize(
    ("view", "item"),
    [
        pytest.param(tasks.TASKS, of_tomorrow(Task), id="task"),
        pytest.param(tasks.TASKS, of_tomorrow(Task, state=TASK_STATE_FINISHED), id="ended"),
        pytest.param(
            tasks.TASKS,
            Task(state=TASK_STATE_RUNNING, run=of_tomorrow(Run)),
            id="run",
        ),
        pytest.param(tasks.RANKS, of_tomorrow(Rank), id="rank"),
        pytest.param(nodes.NODES, of_tomorrow(Node), id="node"),
        pytest.param(accounts.USERS, of_tomorrow(User), id="user"),
        pytest.param(accounts.TOKENS, of_tomorrow(Token), id="token"),
        pytest.param(artifacts.TASK_ARTIFACTS, of_tomorrow(TaskArtifact), id="artifact"),
        pytest.param(storage.MOUNTS, of_tomorrow(Mount), id="mount"),
        pytest.param(storage.RULES, of_tomorrow(MountRule), id="rule"),
        pytest.param(storage.DATASETS, of_tomorrow(Dataset), id="dataset"),
    ],
)
def test_hai_lists_what_it_has_no_word_for(view: View, item: Message) -> None:
    assert "UNKNOWN_99" in cells(view.with_all_columns().columns, [item], 0.0)[0]


def test_so_do_its_pages_and_jupyterlab() -> None:
    run = of_tomorrow(Run)
    assert rank_state_name(TOMORROWS) == run_state_name(run) == "UNKNOWN_99"
    assert containers.service_state(of_tomorrow(ServiceStatus)) == "UNKNOWN_99"
    row = task_row(of_tomorrow(Task, run=run))
    assert {row["state"], row["outcome"], row["run"]} == {"UNKNOWN_99"}
    assert node_row(of_tomorrow(Node))


def test_what_is_known_has_its_word() -> None:
    assert enum_name(TaskState, TaskState.TASK_STATE_WAITING_INIT) == "WAITING_INIT"
