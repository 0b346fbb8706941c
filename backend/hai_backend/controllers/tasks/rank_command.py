"""Builds the command line and the environment variables of a rank. hai.task.env defines the names of variables."""

from __future__ import annotations

from pathlib import PurePosixPath

from hai.task import env
from hai_backend.controllers.scheduling.binder import gpus_of
from hai_backend.domain.node import Node
from hai_backend.domain.spec import RoleSpec
from hai_backend.domain.task import Rank, Run, Task


def argv(task: Task, rank: Rank) -> list[str]:
    """Return the program and its arguments."""
    program, role = task.spec.spec, _role(task, rank)
    entrypoint = role.entrypoint if role and role.entrypoint else program.entrypoint
    parameters = role.parameters if role and role.parameters else program.parameters
    if program.entrypoint_executable:
        return [entrypoint, *parameters]
    interpreter = ["python3", "-u"] if PurePosixPath(entrypoint).suffix == ".py" else ["bash"]
    return [*interpreter, entrypoint, *parameters]


def variables(
    task: Task, run: Run, rank: Rank, node: Node | None, checkpoint_dir: str
) -> dict[str, str]:
    """Return the variables that do not depend on the address of rank 0. The agent adds the others at the start."""
    role = _role(task, rank)
    ours = {
        **_ours(task, run, rank, checkpoint_dir),
        **_distributed(task, run, rank, node),
        **_hai_names(task, run, rank, node),
    }
    return {**task.spec.spec.environments, **(role.environments if role else {}), **ours}


def _role(task: Task, rank: Rank) -> RoleSpec | None:
    return next((r for r in task.spec.roles if r.name == rank.role), None)


def _ours(task: Task, run: Run, rank: Rank, checkpoint_dir: str) -> dict[str, str]:
    return {
        env.TASK_ID: str(task.id),
        env.RUN_NUMBER: str(run.number),
        env.TASK_NAME: task.spec.name,
        env.USER: task.user,
        env.NODE_NAME: rank.node,
        **({env.CHECKPOINT_DIR: checkpoint_dir} if checkpoint_dir else {}),
    }


def _distributed(task: Task, run: Run, rank: Rank, node: Node | None) -> dict[str, str]:
    nodes = str(len(run.ranks))
    per_node = str(max(1, len(gpus_of(task, rank, node))))
    if node is not None and node.gpus_simulated:
        per_node = "1"  # processes cannot use simulated GPUs
    return {
        env.RANK: str(rank.index),
        env.WORLD_SIZE: nodes,
        env.NNODES: nodes,
        env.NODE_RANK: str(rank.index),
        env.NPROC_PER_NODE: per_node,
        "PET_NNODES": nodes,
        "PET_NODE_RANK": str(rank.index),
        "PET_NPROC_PER_NODE": per_node,
    }


def _hai_names(task: Task, run: Run, rank: Rank, node: Node | None) -> dict[str, str]:
    """Return variables with the names of the original HAI Platform, which programs of users may read."""
    return {
        env.TASK_TYPE: task.spec.task_type.value,
        env.WHOLE_LIFE_STATE: str(run.whole_life_state),
        "MARSV2_TASK_ID": str(task.id),
        "MARSV2_NB_NAME": task.spec.name,
        "MARSV2_NB_GROUP": task.spec.resource.group,
        "MARSV2_TASK_BACKEND": task.spec.resource.image,
        "MARSV2_RANK": str(rank.index),
        "MARSV2_NODE_NAME": rank.node,
        "MARSV2_USER": task.user,
        "MARSV2_SCHEDULE_ZONE": node.zone if node else "",
    }
