"""Runs micromamba, mamba or conda to create a prefix whose Python a layer extends.

A prefix contains absolute paths, so it is created in its final directory: <root>/<user>/.conda/<hash of the request>. A
mark file is written last: `doctor` deletes prefixes without it, and `gc` those that no layer extends. The configuration
of conda applies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from haienv.backends.installer_process import installer_error, run_installer
from haienv.digests import hash_text
from haienv.errors import Busy, NotFound
from haienv.store.layout import CONDA_DIR, Home
from haienv.store.transaction import active_builds, build_directory

PROGRAMS = ("micromamba", "mamba", "conda")
DONE_MARK = "conda-meta/haienv-done"


def find_program() -> str:
    """Return the path of the first of PROGRAMS that is installed. Raise NotFound if there is none."""
    for name in PROGRAMS:
        if path := shutil.which(name):
            return path
    raise NotFound(
        f"none of {', '.join(PROGRAMS)} is on PATH", "install one of them, or leave out --conda"
    )


def create_prefix(home: Home, packages: Sequence[str], channels: Sequence[str]) -> Path:
    """Create a prefix with packages (in conda's syntax), or return the existing one."""
    key = "\n".join([*sorted(packages), "", *channels])
    prefix_dir = home.user_dir / CONDA_DIR / hash_text(key)[:24]
    if not (prefix_dir / DONE_MARK).exists():
        with build_directory(home) as work:
            _claim_prefix(home, work / prefix_dir.name)
            shutil.rmtree(prefix_dir, ignore_errors=True)
            prefix_dir.parent.mkdir(parents=True, exist_ok=True)
            _run_create(prefix_dir, packages, channels)
            (prefix_dir / DONE_MARK).parent.mkdir(exist_ok=True)
    (prefix_dir / DONE_MARK).touch()  # so that gc keeps it for some days from now
    return prefix_dir


def _claim_prefix(home: Home, mark: Path) -> None:
    """Mark a prefix in this build directory. Raise Busy if another process is creating the same prefix."""
    mark.touch()
    if any((work / mark.name).exists() for work in active_builds(home) if work != mark.parent):
        raise Busy(
            f"another command is creating the same conda prefix ({mark.name})", "wait for it"
        )


def _run_create(prefix_dir: Path, packages: Sequence[str], channels: Sequence[str]) -> None:
    """Run `create` of conda. Delete the prefix and raise an error if that fails."""
    channel_options = [argument for channel in channels for argument in ("--channel", channel)]
    arguments = ["create", "--yes", "--prefix", str(prefix_dir), *channel_options, *packages]
    command = [find_program(), *arguments]
    is_interactive = sys.stderr.isatty()
    result = run_installer(
        command,
        {**os.environ, "MAMBA_NO_BANNER": "1"},
        sys.stderr if is_interactive else subprocess.PIPE,
        None if is_interactive else subprocess.STDOUT,
    )
    if result.returncode:
        shutil.rmtree(prefix_dir, ignore_errors=True)
        output = (result.stdout or "see above").strip()[-500:]
        raise installer_error(f"{Path(command[0]).name} create: {output}")
