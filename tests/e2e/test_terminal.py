"""A user's day in the terminal app, in tmux, before `hai up`: submit, watch, logs, a failure, stop, quit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

_PATIENCE = 30.0
_LOOKS = 0.1  # seconds between two reads of the screen, which sends no events
_PROGRAM = """
import sys, time
for step in range(100000):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


class Tmux:
    """A private tmux server with one terminal. Its screen is what a user sees."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(directory),
            "HAI_HOME": str(directory / "hai"),
            "HAI_CONFIG": str(directory / "config.toml"),
            "LC_ALL": "C.UTF-8",
            "TEXTUAL_ANIMATIONS": "none",
            "TMUX_TMPDIR": str(directory),
        }
        self.env.pop("TMUX", None)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self._directory, env=self.env, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def tmux(self, *command: str) -> str:
        return self.run("tmux", "-f", os.devnull, *command)

    def open(self) -> None:
        self.tmux("new-session", "-d", "-x", "100", "-y", "30", "sh")

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def shows(self, *texts: str) -> str:
        """Wait until all these texts are on the screen."""
        ends = time.monotonic() + _PATIENCE
        while not all(text in (seen := self.screen()) for text in texts):
            assert time.monotonic() < ends, f"not there: {texts}\n{seen}"
            time.sleep(_LOOKS)
        return seen

    def gone(self, text: str) -> None:
        ends = time.monotonic() + _PATIENCE
        while text in (seen := self.screen()):
            assert time.monotonic() < ends, f"still there: {text}\n{seen}"
            time.sleep(_LOOKS)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Tmux]:
    made = Tmux(tmp_path)
    (tmp_path / "train.py").write_text(_PROGRAM)
    (tmp_path / "broken.py").write_text("print('loading')\nimport not_there\n")
    made.run("hai", "up", "--nodes", "2")
    made.open()
    try:
        yield made
    finally:
        subprocess.run(["tmux", "kill-server"], env=made.env, capture_output=True, check=False)
        made.run("hai", "down")


def test_a_day_in_the_terminal_app(terminal: Tmux) -> None:
    terminal.type("stty -g > before; hai tui; stty -g > after\n")
    terminal.shows("HAI › tasks", "● live", "no task yet")
    terminal.run("hai", "python", "train.py", "--", "-n", "1")
    terminal.run("hai", "python", "broken.py", "--", "-n", "1")
    terminal.shows("train.py", "● RUNNING", "broken.py", "✗ FAILED", "2 tasks")

    terminal.press("/")
    terminal.shows("status:failed tag:bert")  # the filter line is open and receives keys
    terminal.type("status:failed")
    terminal.press("Enter")
    terminal.shows("1 of 2 tasks")
    terminal.press("Enter")
    terminal.shows(
        "Failure", "exit code 1", "No module named 'not_there'", "likely cause: a Python package"
    )
    terminal.press("Escape")
    terminal.shows("1 of 2 tasks")
    terminal.press("Escape")
    # Wait before the next key, because Escape and a key at once are Alt and that key.
    terminal.shows("train.py", "broken.py")

    terminal.press("G")
    terminal.press("l")
    terminal.shows("logs 1", "step 3")
    terminal.press("Escape")
    terminal.shows("2 tasks")

    terminal.press("C-d")
    terminal.shows("Stop 1 train.py?")
    terminal.press("p")
    terminal.shows("■ STOPPED")

    terminal.press("q")
    terminal.gone("HAI › tasks")
    terminal.type("clear; cmp before after && echo as it was\n")
    terminal.shows("as it was")


def test_a_killed_app_leaves_the_terminal_as_it_was(terminal: Tmux) -> None:
    terminal.type("stty -g > before; hai tui --demo; stty -g > after\n")
    terminal.shows("12 tasks")
    pane = terminal.tmux("display-message", "-p", "#{pane_pid}").strip()
    app = terminal.run("ps", "-o", "pid=", "--ppid", pane).split()[0]
    terminal.run("kill", app)
    terminal.gone("HAI › tasks")
    terminal.type("clear; cmp before after && echo as it was\n")
    terminal.shows("as it was")
