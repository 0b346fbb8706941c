"""What ends a server in words, and what must not end it."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from hai_backend import main


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_a_full_disk_loses_lines_of_the_log_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())
    main._log_as_json()
    structlog.get_logger().warning("an agent was cut off")


def test_a_home_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main.main(["--home", str(tmp_path / "file" / "home")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hai-server: cannot work in ")
    assert "Not a directory" in line
