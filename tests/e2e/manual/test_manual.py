"""The command lines in the manual's console blocks work, in order, on a machine without a server or settings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def commands(page: Path) -> list[str]:
    """Return the lines that begin with `$` inside console blocks."""
    blocks = page.read_text().split("```console\n")[1:]
    lines = [line for block in blocks for line in block.split("```")[0].splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ")]


@pytest.mark.parametrize(
    ("page", "before"),
    [
        pytest.param("first-steps.md", (), id="first steps"),
        pytest.param("containers.md", ("hai up",), id="dev containers"),
        pytest.param("coming-from.md", ("hai up",), id="coming from elsewhere"),
    ],
)
def test_every_command_works(tmp_path: Path, page: str, before: tuple[str, ...]) -> None:
    scripts = Path(sys.executable).parent
    env = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "HAI_HOME": str(tmp_path / "hai"),
        "HAI_CONFIG": str(tmp_path / "config.toml"),
        "LC_ALL": "C.UTF-8",
    }
    try:
        for command in (*before, *commands(ROOT / "docs" / page)):
            done = subprocess.run(
                shlex.split(command), cwd=ROOT, env=env, capture_output=True, text=True, timeout=100
            )
            assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    finally:
        subprocess.run(["hai", "down"], env=env, capture_output=True, check=False)
