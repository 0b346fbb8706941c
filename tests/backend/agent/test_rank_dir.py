"""What an agent leaves in the directory of its rank."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from hai_backend.agent.rank_dir import RankDir


def test_the_first_reason_of_a_failure_counts(tmp_path: Path) -> None:
    directory = RankDir(tmp_path)
    directory.report_failure("the lease expired")
    directory.report_failure("the agent was killed")
    assert directory.failure.read_text() == "the lease expired"
    assert list(tmp_path.iterdir()) == [directory.failure]


def test_a_reason_that_could_not_be_written_gives_way_to_the_next(tmp_path: Path) -> None:
    """As when the supervisor kills an agent that is just writing: an empty file was the first reason."""
    directory = RankDir(tmp_path)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        directory.report_failure("the lease expired")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    directory.report_failure("the agent was killed")
    assert directory.failure.read_text() == "the agent was killed"
