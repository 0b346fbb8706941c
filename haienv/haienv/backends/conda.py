"""Runs micromamba, mamba or conda to create a prefix whose Python a layer extends.

A prefix contains absolute paths, so it is created in its final directory: <root>/<user>/.conda/<hash of the request>. A
mark file is written last: `doctor` deletes prefixes without it, `gc` deletes those that no layer extends. conda's
configuration and TLS checks are not changed.
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
    """The path of the first installed program. Raises NotFound."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise NotFound(
        f"none of {', '.join(PROGRAMS)} is on PATH", "install one of them, or leave out --conda"
    )


def create_prefix(home: Home, packages: Sequence[str], channels: Sequence[str]) -> Path:
    """Create a prefix with packages (in conda's syntax), or return the existing one."""
    key = "\n".join([*sorted(packages), "", *channels])
    prefix_dir = home.user_dir / CONDA_DIR / sha256(key.encode()).hexdigest()[:24]
    if not (prefix_dir / DONE_MARK).exists():
        with build_directory(home) as work:
            _claim(home, work / prefix_dir.name)
            shutil.rmtree(prefix_dir, ignore_errors=True)
            prefix_dir.parent.mkdir(parents=True, exist_ok=True)
            _run_create(prefix_dir, packages, channels)
            (prefix_dir / DONE_MARK).parent.mkdir(exist_ok=True)
    (prefix_dir / DONE_MARK).touch()  # the age that gc compares starts now
    return prefix_dir


def _claim(home: Home, mark: Path) -> None:
    """Raises Busy if another process creates the same prefix."""
    mark.touch()
    if any((work / mark.name).exists() for work in active_builds(home) if work != mark.parent):
        raise Busy(
            f"another command is creating the same conda prefix ({mark.name})", "wait for it"
        )


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
