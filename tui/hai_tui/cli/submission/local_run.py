"""Runs a program on this machine as a cluster of one rank would, with a simulated platform."""

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
from hai_tui.cli.submission.options import read_variables

_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX", "HF_ENV_NAME")
_MASTER_PORT = "29510"


def exec_program(kind: str, argv: Sequence[str], options: Mapping[str, Any]) -> NoReturn:
    """Replace this process by the program, which then has its own exit code and signals."""
    command = [*_interpreter(kind), program_path(kind, argv[0]), *argv[1:]]
    environment = {
        **os.environ,
        **simulated_environment(options),
        **read_variables(options["env_file"], options["env"]),
    }
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise click.ClickException(f"cannot run {command[0]!r}: {error.strerror}") from error


def simulated_environment(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that tell the SDK and torchrun about a cluster of one rank."""
    variables = {
        env.SIMULATE: "1",
        env.WORLD_SIZE: "1",
        env.RANK: "0",
        env.MASTER_ADDR: "127.0.0.1",
        env.MASTER_IP: "127.0.0.1",
        env.MASTER_PORT: _MASTER_PORT,
        env.WHOLE_LIFE_STATE: str(options["life_state"]),
    }
    if options["suspend_seconds"] is not None:
        variables[env.SIMULATE_SUSPEND] = f"{options['suspend_seconds']:g}"
    return variables


def program_path(kind: str, file: str) -> str:
    """Return the path of the file as it is executed. Raise UsageError if it does not exist or cannot run."""
    if Path(file).is_file():
        if fault := script_fault(Path(file), "" if kind == "exec" else kind):
            raise click.UsageError(f"{fault}; nothing was run or sent")
        return os.path.join(".", file) if kind == "exec" and os.sep not in file else file
    if kind == "exec" and os.sep not in file and shutil.which(file):
        return file
    raise click.UsageError(f"there is no file {file!r}; nothing was run or sent")


def _interpreter(kind: str) -> list[str]:
    """Return the Python of an active environment, else the one that runs hai, which has the SDK."""
    if kind != "python":
        return ["bash"] if kind == "bash" else []
    active = any(os.environ.get(name) for name in _ENVIRONMENTS)
    found = shutil.which("python3") if active else None
    return [found or sys.executable]
