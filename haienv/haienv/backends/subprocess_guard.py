"""Runs installers so that they die with haienv: a surviving one would write into directories that `doctor` has cleaned.

`setpriv` (util-linux) sets the parent-death signal; a preexec_fn would not be safe with the threads of gRPC. Without
`setpriv`, an orphaned installer fails when its directory is deleted.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO


def run(
    command: Sequence[str], environ: Mapping[str, str], stdout: int | IO[str], stderr: int | None
) -> subprocess.CompletedProcess[str]:
    """Run an installer without input; it is killed when this process dies."""
    setpriv = shutil.which("setpriv")
    bound = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
    return subprocess.run(
        [*bound, *command],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
    )
