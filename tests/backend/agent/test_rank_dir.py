"""The files that an agent writes to the directory of its rank."""

from __future__ import annotations

import errno
import io
import os
import resource
import sys
from pathlib import Path

import pytest

from hai_backend.agent.rank_dir import RankDir, write_agent_log


def test_the_first_reason_of_a_failure_counts(tmp_path: Path) -> None:
    directory = RankDir(tmp_path)
    directory.report_failure("the lease expired")
    directory.report_failure("the agent was killed")
    assert directory.failure.read_text() == "the lease expired"
    assert list(tmp_path.iterdir()) == [directory.failure]


def test_a_reason_that_could_not_be_written_gives_way_to_the_next(tmp_path: Path) -> None:
    """If an agent is killed while it writes its reason, no empty file must remain in place of the next reason."""
    directory = RankDir(tmp_path)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        directory.report_failure("the lease expired")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    directory.report_failure("the agent was killed")
    assert directory.failure.read_text() == "the agent was killed"


def test_a_line_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    write_agent_log("no way to the server")
    assert capsys.readouterr().err.endswith("Z no way to the server\n")


class FullDisk(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_loses_the_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())
    write_agent_log("no way to the server")
