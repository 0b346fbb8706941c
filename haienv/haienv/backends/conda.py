"""conda, where a site has it: micromamba, mamba or conda makes a prefix, and a layer of ours extends its Python.

A prefix holds absolute paths, so it is made where it stays: <root>/<user>/.conda/<hash of what was asked>. A mark in it
is written last; without that `doctor` takes it, without a layer that extends it `gc` does. conda's own configuration
is left alone, and so are TLS checks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from haienv.backends.subprocess_guard import run
from haienv.errors import Busy, NotFound, installer_failed
from haienv.store.layout import CONDA_DIR, Home
from haienv.store.transaction import active_builds, build_directory

PROGRAMS = ("micromamba", "mamba", "conda")
DONE_MARK = "conda-meta/haienv-done"


def find_program() -> str:
    """The path of the first that is installed, or NotFound."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise NotFound(
        f"none of {', '.join(PROGRAMS)} is on PATH", "leave out --conda: uv needs none of them"
    )


def create_prefix(home: Home, packages: Sequence[str], channels: Sequence[str]) -> Path:
    """A prefix with these packages (conda's own specifications); one that is there already is taken."""
    key = "\n".join([*sorted(packages), "", *channels])
    prefix_dir = home.user_dir / CONDA_DIR / sha256(key.encode()).hexdigest()[:24]
    if not (prefix_dir / DONE_MARK).exists():
        with build_directory(home) as work:
            _claim(home, work / prefix_dir.name)
            shutil.rmtree(prefix_dir, ignore_errors=True)
            prefix_dir.parent.mkdir(parents=True, exist_ok=True)
            _run_create(prefix_dir, packages, channels)
            (prefix_dir / DONE_MARK).parent.mkdir(exist_ok=True)
    (prefix_dir / DONE_MARK).touch()  # gc waits some days from now
    return prefix_dir


def _claim(home: Home, mark: Path) -> None:
    """Raises Busy when another process makes the same prefix: it is made where it stays."""
    mark.touch()
    if any((work / mark.name).exists() for work in active_builds(home) if work != mark.parent):
        raise Busy(f"another command lets conda make the same ({mark.name})", "wait for it")


def _run_create(prefix_dir: Path, packages: Sequence[str], channels: Sequence[str]) -> None:
    channel_options = [argument for channel in channels for argument in ("--channel", channel)]
    command = [
        find_program(),
        "create",
        "--yes",
        "--prefix",
        str(prefix_dir),
        *channel_options,
        *packages,
    ]
    interactive = sys.stderr.isatty()
    done = run(
        command,
        {**os.environ, "MAMBA_NO_BANNER": "1"},
        sys.stderr if interactive else subprocess.PIPE,
        None if interactive else subprocess.STDOUT,
    )
    if done.returncode:
        shutil.rmtree(prefix_dir, ignore_errors=True)
        output = (done.stdout or "see above").strip()[-500:]
        raise installer_failed(f"{Path(command[0]).name} create: {output}")
