"""Installers end with us: one that outlives a killed haienv would go on writing where `doctor` has cleaned.

`setpriv` (util-linux) tells the kernel so; nothing of ours runs between fork and exec, which threads of gRPC forbid.
Where there is none, an installer that is left alone fails by itself, once its directory is gone.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    stdout: int | IO[str],
    stderr: int | None,
) -> subprocess.CompletedProcess[str]:
    """Run an installer to its end; it reads nothing, and it is killed when this process is."""
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
