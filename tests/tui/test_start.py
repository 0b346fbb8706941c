"""The app starts in a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path


def test_the_app_ends_when_its_terminal_closes(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "hai_tui.cli.main", "tui", "--demo"]
    env = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm"}
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
    ) as app:
        os.close(slave)
        try:
            assert os.read(master, 1)  # the app has drawn something
            assert app.poll() is None
            os.close(master)
            assert app.wait(timeout=60) == 129
        finally:
            app.kill()
