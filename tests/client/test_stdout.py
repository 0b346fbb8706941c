"""Output that nobody reads any more, of each of our commands."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["hai_tui.cli.main", "haienv.cli.main", "hai_sync.cli.main"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_whose_reader_has_left_says_nothing(module: str, unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", module, "--help"]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, env=env, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_knowing_it_takes_nothing_but_os_and_sys() -> None:
    """A small push of `haiworkspace` imports almost nothing."""
    program = "import hai.client, sys; old = {*sys.modules}; import hai.client.stdout; print(*{*sys.modules} - old)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["hai.client.stdout"]
