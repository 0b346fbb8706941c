"""A full disk must not cost a program its agent."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from hai_backend.agent.output import agent_log


def test_a_line_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    agent_log.note("no way to the server")
    assert capsys.readouterr().err.endswith("Z no way to the server\n")


class FullDisk(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_loses_the_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())
    agent_log.note("no way to the server")
