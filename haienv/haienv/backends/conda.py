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
from haienv.store.layout import CONDA, Home
from haienv.store.transaction import at_work, building

PROGRAMS = ("micromamba", "mamba", "conda")
DONE = "conda-meta/haienv-done"


def program() -> str:
    """The path of the first that is installed, or NotFound."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise NotFound(
        f"none of {', '.join(PROGRAMS)} is on PATH", "leave out --conda: uv needs none of them"
    )


def prefix(home: Home, packages: Sequence[str], channels: Sequence[str]) -> Path:
    """A prefix with these packages (conda's own specifications); one that is there already is taken."""
    facts = "\n".join([*sorted(packages), "", *channels])
    place = home.own / CONDA / sha256(facts.encode()).hexdigest()[:24]
    if not (place / DONE).exists():
        with building(home) as work:
            _begin(home, work / place.name)
            shutil.rmtree(place, ignore_errors=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            _make(place, packages, channels)
            (place / DONE).parent.mkdir(exist_ok=True)
    (place / DONE).touch()  # gc waits some days from now
    return place


def _begin(home: Home, mark: Path) -> None:
    """Raises Busy when another process makes the same prefix: it is made where it stays."""
    mark.touch()
    if any((work / mark.name).exists() for work in at_work(home) if work != mark.parent):
        raise Busy(f"another command lets conda make the same ({mark.name})", "wait for it")


def _make(place: Path, packages: Sequence[str], channels: Sequence[str]) -> None:
    given = [word for channel in channels for word in ("--channel", channel)]
    command = [program(), "create", "--yes", "--prefix", str(place), *given, *packages]
    seen = sys.stderr.isatty()
    done = run(
        command,
        {**os.environ, "MAMBA_NO_BANNER": "1"},
        sys.stderr if seen else subprocess.PIPE,
        None if seen else subprocess.STDOUT,
    )
    if done.returncode:
        shutil.rmtree(place, ignore_errors=True)
        what = (done.stdout or "see above").strip()[-500:]
        raise installer_failed(f"{Path(command[0]).name} create: {what}")
