"""The staging directory of a rank, as its agent sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai.task import env
from hai_backend.agent.program.staging import StagingDirectory


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StagingDirectory:
    monkeypatch.setenv(env.STAGING_DIR, str(tmp_path / "7"))
    made = StagingDirectory()
    made.create()
    return made


def test_files_in_the_directory_are_seen(staging: StagingDirectory, tmp_path: Path) -> None:
    assert not staging.has_files()
    (tmp_path / "7" / "1.data").touch()
    assert staging.has_files()


async def test_an_agent_survives_that_the_directory_is_removed(
    staging: StagingDirectory, tmp_path: Path
) -> None:
    (tmp_path / "7").rmdir()
    assert not staging.has_files()
    await staging.write_out()
