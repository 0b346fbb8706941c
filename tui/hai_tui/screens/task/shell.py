"""A terminal in a rank: the app leaves the screen to `hai shell`, and takes it back when that has ended."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from hai_tui.i18n import text
from hai_tui.session import connect

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task
    from hai_tui.base_app import BaseApp


def why_no_shell(hai: BaseApp, task: Task | None) -> str:
    """Why there is none; empty: there is."""
    from hai_tui.feed.task_status import cached_status

    if hai.options.connect is not connect:
        return text("shell.made_up")
    running = task is not None and cached_status(task) == "RUNNING"
    return "" if running else text("shell.not_running")


def open_shell(hai: BaseApp, task: int, rank: int) -> None:
    """Until the shell ends. Nothing else happens meanwhile: the screen is the shell's."""
    name = hai.session.profile.name
    profile = ["--profile", name] if name else []
    command = [sys.executable, "-m", "hai_tui.cli.main", "shell", *profile]
    with hai.suspend():
        print(text("shell.open", task=task, rank=rank), flush=True)
        code = subprocess.run([*command, str(task), "-r", str(rank)], check=False).returncode
    hai.say(text("shell.ended", code=code), warning=bool(code))
