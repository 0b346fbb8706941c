"""Variables that only the agent can know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.environment import for_program
from hai_backend.agent.rank_dir import RankDir
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
    variables = for_program(ours, pb.AgentWelcome(), pb.Go(), directory, identity, tmp_path)
    assert identity.gpu_indices == indices
    assert variables["CUDA_VISIBLE_DEVICES"] == visible


def test_a_directory_of_an_earlier_release_can_be_read(tmp_path: Path) -> None:
    facts = {"task_id": 7, "run": 1, "rank": 0, "node": "node1", "token": "secret"}
    (tmp_path / "agent.json").write_text(json.dumps(facts))
    assert RankDir(tmp_path).identity().gpu_indices is None
