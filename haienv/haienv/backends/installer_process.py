"""Runs installers so that they end with haienv. An orphan would write into directories that `doctor` has cleaned.

`setpriv` (util-linux) sets the signal that the kernel sends when the parent ends; a preexec_fn would not be safe with
the threads of gRPC. Without `setpriv`, an orphan fails when its directory is deleted.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from haienv.errors import DISK_FULL_HINT, BuildFailed, DiskFull, EnvError

_DISK_FULL_TEXTS = ("No space left on device", "Disk quota exceeded")


def run_installer(
    command: Sequence[str], environ: Mapping[str, str], stdout: int | IO[str], stderr: int | None
) -> subprocess.CompletedProcess[str]:
    """Run an installer without input. The kernel kills it when this process dies."""
    setpriv = shutil.which("setpriv")
    wrapper = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
    return subprocess.run(
        [*wrapper, *command],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
    )


def installer_error(output: str, hint: str = "") -> EnvError:
    """Return the error for the output of a failed installer, which reports a full disk in its text only."""
    if any(text in output for text in _DISK_FULL_TEXTS):
        return DiskFull(output, DISK_FULL_HINT)
    return BuildFailed(output, hint)
