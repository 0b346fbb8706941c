"""Tests of a command whose output is a closed pipe."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["hai_tui.cli.main", "haienv.cli.main", "hai_sync.cli.main"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_ends_silently_when_its_output_is_a_closed_pipe(
    module: str, unbuffered: str
) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", module, "--help"]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, env=env, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
