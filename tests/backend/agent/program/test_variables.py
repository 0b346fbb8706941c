"""The environment variables of a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.variables import program_variables
from hai_backend.agent.rank_dir import RankDir
from hai_backend.domain.environment import EnvironmentName
from hai_backend.environments.activation import Activation
from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.rank_dirs import make


@pytest.mark.parametrize(
    ("indices", "visible"),
    [
        pytest.param((5, 7), "5,7", id="its own"),
        pytest.param((), "", id="none of those that are there"),
        pytest.param(None, "what the node says", id="no real ones: untouched"),
    ],
)
def test_a_program_sees_its_own_gpus_only(
    tmp_path: Path, indices: tuple[int, ...] | None, visible: str
) -> None:
    path = tmp_path / "7-1-0"
    make(path, RankLaunch(RankKey(7, 1, 0), "node1", "secret"), indices)
    directory = RankDir(path)
    ours = {"CUDA_VISIBLE_DEVICES": "what the node says"}
    identity = directory.identity()
    variables = program_variables(ours, pb.AgentWelcome(), pb.Go(), directory, identity, tmp_path)
    assert identity.gpu_indices == indices
    assert variables["CUDA_VISIBLE_DEVICES"] == visible


def test_an_environment_stands_between_node_and_task(tmp_path: Path) -> None:
    """The task's variables take precedence, but its PATH follows that of the environment.

    Neither the task nor the environment can replace the variables of the platform.
    """
    path = tmp_path / "7-1-0"
    make(path, RankLaunch(RankKey(7, 1, 0), "node1", "secret"), None)
    layer = tmp_path / "layer"
    active = Activation(
        EnvironmentName("ada", "torch"),
        "a" * 64,
        (layer,),
        (f"{layer}/bin",),
        ("/search",),
        {"A": "environment", "B": "environment", "HAI_RANK_KEY": "forged", "MASTER_PORT": "1"},
    )
    ours = {"PATH": "/node", "PYTHONHOME": "/x", "A": "node"}
    task = {"B": "task", "PATH": "/task", "PYTHONPATH": "/lib"}
    directory = RankDir(path)
    made = program_variables(
        ours,
        pb.AgentWelcome(environments=task),
        pb.Go(master_port=4000),
        directory,
        directory.identity(),
        tmp_path,
        active,
    )
    assert (made["A"], made["B"]) == ("environment", "task")
    assert made["PATH"] == f"{layer}/bin:/task"
    assert made["PYTHONPATH"] == f"{tmp_path}:/search:/lib"
    assert (made["HAI_RANK_KEY"], made["MASTER_PORT"]) == ("7-1-0", "4000")
    assert (made["HF_ENV_NAME"], made["HF_ENV_OWNER"]) == ("torch", "ada")
    assert "PYTHONHOME" not in made


def test_a_directory_of_an_earlier_release_can_be_read(tmp_path: Path) -> None:
    facts = {"task_id": 7, "run": 1, "rank": 0, "node": "node1", "token": "secret"}
    (tmp_path / "agent.json").write_text(json.dumps(facts))
    assert RankDir(tmp_path).identity().gpu_indices is None


def test_pwd_is_the_working_directory_and_nothing_of_a_shell_is_left(tmp_path: Path) -> None:
    path, workspace = tmp_path / "7-1-0", tmp_path / "work"
    make(path, RankLaunch(RankKey(7, 1, 0), "node1", "secret"), None)
    directory = RankDir(path)
    ours = {"PWD": "/where/the/server/began", "OLDPWD": "/", "SHLVL": "2", "_": "/bin/hai"}
    welcome = pb.AgentWelcome(environments={"PWD": "/of/the/task"})
    made = program_variables(ours, welcome, pb.Go(), directory, directory.identity(), workspace)
    assert made["PWD"] == str(workspace)
    assert made.keys().isdisjoint({"OLDPWD", "SHLVL", "_"})
