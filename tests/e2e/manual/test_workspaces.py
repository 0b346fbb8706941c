"""The commands of the manual's introduction to workspaces work as written."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def _commands(page: Path) -> list[str]:
    blocks = page.read_text("utf-8").split("```console\n")[1:]
    return [line[2:] for block in blocks for line in block.split("```")[0].splitlines() if line]


def test_the_first_five_minutes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('trained'); open('result.txt', 'w').write('1')\n")
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "HAI_HOME": str(tmp_path / "hai"),
        "HAI_CONFIG": str(tmp_path / "config.toml"),
        "LC_ALL": "C.UTF-8",
    }

    def run(command: str) -> str:
        done = subprocess.run(
            shlex.split(command), cwd=project, env=env, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    try:
        run("hai up")
        said = [run(command) for command in _commands(ROOT / "docs" / "workspaces.md")]
        assert "trained" in said[2]
        assert "revision 1 of demo" in said[2]
        assert (project / "result.txt").read_text() == "1"
    finally:
        subprocess.run(["hai", "down"], env=env, capture_output=True, check=False)
