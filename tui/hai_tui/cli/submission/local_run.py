"""Running a program on this machine as the cluster would: one rank, with a simulated platform."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from hai.host.script_check import script_fault
from hai.task import env
from hai_tui.cli.submission.options import variables

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX", "HF_ENV_NAME")
_MASTER_PORT = "29510"


def run_here(kind: str, argv: Sequence[str], options: Mapping[str, Any]) -> NoReturn:
    """Become the program; its exit code and signals are then its own."""
    command = [*_interpreter(kind), program_path(kind, argv[0]), *argv[1:]]
    surroundings = {**os.environ, **simulation(options), **_own(options)}
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, surroundings)
    except OSError as error:
        raise click.ClickException(f"cannot run {command[0]!r}: {error.strerror}") from error


def simulation(options: Mapping[str, Any]) -> dict[str, str]:
    """The variables that tell the SDK and torchrun that this is a cluster of one."""
    result = {
        env.SIMULATE: "1",
        env.WORLD_SIZE: "1",
        env.RANK: "0",
        env.MASTER_ADDR: "127.0.0.1",
        env.MASTER_IP: "127.0.0.1",
        env.MASTER_PORT: _MASTER_PORT,
        env.WHOLE_LIFE_STATE: str(options["life_state"]),
    }
    if options["suspend_seconds"] is not None:
        result[env.SIMULATE_SUSPEND] = f"{options['suspend_seconds']:g}"
    return result


def program_path(kind: str, file: str) -> str:
    """The file as it is to be run. Raises UsageError when there is none, or when it cannot run as it is."""
    if Path(file).is_file():
        if fault := script_fault(Path(file), "" if kind == "exec" else kind):
            raise click.UsageError(f"{fault}; nothing was run or sent")
        return os.path.join(".", file) if kind == "exec" and os.sep not in file else file
    if kind == "exec" and os.sep not in file and shutil.which(file):
        return file
    raise click.UsageError(f"there is no file {file!r}; nothing was run or sent")


def _interpreter(kind: str) -> list[str]:
    """The Python of an active environment, else the one that runs hai (it has the SDK)."""
    if kind != "python":
        return ["bash"] if kind == "bash" else []
    active = any(os.environ.get(name) for name in _ENVIRONMENTS)
    found = shutil.which("python3") if active else None
    return [found or sys.executable]


def _own(options: Mapping[str, Any]) -> dict[str, str]:
    return variables(options["env_file"], options["env"])
