"""Runs the hooks of an environment: commands such as installing a kernel, after its packages have changed.

Hooks are part of the metadata. They run in the environment, without a shell, and only after commands of its owner;
hooks of other users and of archives never run. The change is complete before they start, so a failure undoes nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

from haienv.activate.activation import activation
from haienv.errors import HookFailed
from haienv.store.layout import Home
from haienv.store.registry import Environment


def run_hooks(home: Home, environment: Environment) -> int:
    """Run all hooks in order, with output on standard error. Returns 0. Raises HookFailed."""
    if environment.owner != home.user or not environment.metadata.config.hooks:
        return 0
    variables = activation(home, environment).applied(os.environ)
    for command in environment.metadata.config.hooks:
        arguments = shlex.split(command)
        program = shutil.which(arguments[0], path=variables["PATH"])
        if program is None:
            raise _failed(environment, command, f"there is no program {arguments[0]!r}")
        sys.stderr.flush()
        result = subprocess.run(
            [program, *arguments[1:]], env=variables, stdin=subprocess.DEVNULL, stdout=2
        )
        if result.returncode:
            raise _failed(environment, command, f"it ended with code {result.returncode}")
    return 0


def _failed(environment: Environment, command: str, reason: str) -> HookFailed:
    return HookFailed(
        f"{environment} is ready, but its hook {command!r} failed: {reason}",
        f"run it again: haienv run {environment.name} -- {command}; or remove it: haienv config remove "
        f"{environment.name} hook {shlex.quote(command)}",
    )
