"""Builds the environment variables of the program. Only the agent knows some of them: paths of files, and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hai.task import env
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.rank_dir import Identity, RankDir
from hai_backend.environments.activation import Activation, join_paths

_DEFAULTS = {"PYTHONUNBUFFERED": "1"}  # lines appear when the program prints them
_LISTS = ("PATH", "PYTHONPATH")
_SHELL_STATE = ("OLDPWD", "SHLVL", "_")  # variables of a shell that has started the agent


def program_variables(
    agent_variables: Mapping[str, str],
    welcome: pb.AgentWelcome,
    go: pb.Go,
    directory: RankDir,
    identity: Identity,
    workspace: Path,
    active: Activation | None = None,
) -> dict[str, str]:
    """Return all variables of the program.

    Variables of the node are overridden by those of the environment, then of the task, then of the rank.

    In PATH and PYTHONPATH, the task's directories come after those of the environment.
    """
    task = dict(welcome.environments)
    lists = {name: task.pop(name) for name in _LISTS if task.get(name)}
    node = {name: value for name, value in agent_variables.items() if name not in _SHELL_STATE}
    base = {**_DEFAULTS, **node, **lists}
    activated = active.apply_to(base) if active else base
    return {
        **activated,
        **task,
        "PWD": str(workspace),
        "PYTHONPATH": join_paths((str(workspace), activated.get("PYTHONPATH", ""))),
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
    """Return the variable for the profile with the owner's token, unless the task names another profile.

    Only dev containers have such a profile.
    """
    has_profile = directory.profile.exists() and env.CONFIG not in task
    return {env.CONFIG: str(directory.profile)} if has_profile else {}


def _gpus(identity: Identity) -> dict[str, str]:
    if identity.gpu_indices is None:
        return {}  # the machine has no GPUs; an empty value would hide all GPUs
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # CUDA counts GPUs as NVML does; its default is by speed
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in identity.gpu_indices),
    }
