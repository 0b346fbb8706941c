"""The variables that only the agent can know: where rank 0 listens, where this rank's files are, which GPUs it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hai.task import env
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.rank_dir import Identity, RankDir
from hai_backend.environments.activation import Activation, join_paths

# lines appear when they are printed, also those of a script's children
_DEFAULTS = {"PYTHONUNBUFFERED": "1"}

_LISTS = ("PATH", "PYTHONPATH")
_OF_A_SHELL = ("OLDPWD", "SHLVL", "_")  # which has started the agent


def program_variables(
    ours: Mapping[str, str],
    welcome: pb.AgentWelcome,
    go: pb.Go,
    directory: RankDir,
    identity: Identity,
    workspace: Path,
    active: Activation | None = None,
) -> dict[str, str]:
    """All variables of the program: the node's, the environment's, the task's, then those of this rank; later ones win.

    What the task says of PATH and PYTHONPATH stands behind the environment's own.
    """
    task = dict(welcome.environments)
    lists = {name: task.pop(name) for name in _LISTS if task.get(name)}
    node = {name: value for name, value in ours.items() if name not in _OF_A_SHELL}
    under = {**_DEFAULTS, **node, **lists}
    over = active.apply_to(under) if active else under
    return {
        **over,
        **task,
        "PWD": str(workspace),
        "PYTHONPATH": join_paths((str(workspace), over.get("PYTHONPATH", ""))),
        **_master(go),
        **_rank(directory, identity),
        **_profile(directory, task),
        **_gpus(identity),
    }


def _master(go: pb.Go) -> dict[str, str]:
    port = str(go.master_port)
    return {
        env.MASTER_ADDR: go.master_address,
        env.MASTER_IP: go.master_address,
        env.MASTER_PORT: port,
        "PET_MASTER_ADDR": go.master_address,
        "PET_MASTER_PORT": port,
    }


def _rank(directory: RankDir, identity: Identity) -> dict[str, str]:
    return {
        env.CONTROL_FILE: str(directory.control),
        env.AGENT_SOCKET: str(directory.socket_address()),
        env.RANK_KEY: f"{identity.task_id}-{identity.run}-{identity.rank}",
        env.NOTICE_FILE: str(directory.notice),
    }


def _profile(directory: RankDir, task: Mapping[str, str]) -> dict[str, str]:
    """A dev container that was given a token of its owner speaks with it, unless the task says otherwise."""
    has_profile = directory.profile.exists() and env.CONFIG not in task
    return {env.CONFIG: str(directory.profile)} if has_profile else {}


def _gpus(identity: Identity) -> dict[str, str]:
    if identity.gpu_indices is None:
        return {}  # nothing to hide; an empty value hides every GPU
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in identity.gpu_indices)}
