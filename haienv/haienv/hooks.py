"""Runs the hooks of an environment: commands that run after its packages have changed, for example to install a kernel.

Hooks are part of the metadata. They run in the environment, without a shell, and only after commands of its owner;
hooks of other users and of archives never run. The change is committed before the first hook starts, so a failing hook
undoes nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

from haienv.activate.activation import compute_activation
from haienv.errors import HookFailed
from haienv.store.layout import Home
from haienv.store.registry import Environment


def run_hooks(home: Home, environment: Environment) -> int:
    """Run all hooks in order, with output on standard error. Return 0, the exit code. Raise HookFailed."""
    if environment.owner != home.user or not environment.metadata.config.hooks:
        return 0
    variables = compute_activation(home, environment).apply_to(os.environ)
    for command in environment.metadata.config.hooks:
        arguments = shlex.split(command)
        program = shutil.which(arguments[0], path=variables["PATH"])
        if program is None:
            raise _hook_failed(environment, command, f"there is no program {arguments[0]!r}")
        sys.stderr.flush()
        result = subprocess.run(
            [program, *arguments[1:]], env=variables, stdin=subprocess.DEVNULL, stdout=2
        )
        if result.returncode:
            raise _hook_failed(environment, command, f"it ended with code {result.returncode}")
    return 0


def _hook_failed(environment: Environment, command: str, reason: str) -> HookFailed:
    return HookFailed(
        f"{environment} is ready, but its hook {command!r} failed: {reason}",
        f"run it again: haienv run {environment.name} -- {command}; or remove it: haienv config remove "
        f"{environment.name} hook {shlex.quote(command)}",
    )
