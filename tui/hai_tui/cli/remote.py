"""From `hai python FILE ARG… -- OPTIONS` to a task spec."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.local import program_path
from hai_tui.cli.sending import submit
from hai_tui.cli.settings import Settings
from hai_tui.cli.show import note
from hai_tui.cli.submit import override
from hai_tui.cli.texts import text

if TYPE_CHECKING:
    from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec

_WORDS = re.compile(rb"^#(?:SBATCH|PBS|BSUB)\b", re.MULTILINE)
_SUFFIXES = {"python": ".py", "bash": ".sh"}
_INTERPRETERS = {"python": ("python3", "-u"), "bash": ("bash",)}


def submit_program(
    settings: Settings, kind: str, argv: Sequence[str], options: Mapping[str, Any]
) -> int:
    """Submit the program of the command line."""
    if options["suspend_seconds"] is not None:
        raise click.UsageError("-ss simulates a suspend on this machine: use ++ not --")
    spec = program_spec(kind, argv)
    spec.options.whole_life_state = options["life_state"]
    if kind == "bash":
        _tell_unread(settings, Path(program_path(kind, argv[0])))
    return submit(settings, [override(settings, spec, options)], options)


def _tell_unread(settings: Settings, file: Path) -> None:
    """What schedulers elsewhere read in a script does nothing here."""
    if words := _WORDS.findall(file.read_bytes()):
        note(settings, text("submitted.unread", words=words[0].decode(), file=file.name))


def program_spec(kind: str, argv: Sequence[str]) -> TaskSpec:
    """A spec with the program, run in the directory that the user stands in."""
    from hai.v1.task_spec_pb2 import TaskSpec

    file = program_path(kind, argv[0])
    spec = TaskSpec(version=2, name=Path(file).name, spec=_program(kind, file, argv[1:]))
    spec.resource.node_count = 1
    return spec


def _program(kind: str, file: str, parameters: Sequence[str]) -> ProgramSpec:
    from hai.v1.task_spec_pb2 import ProgramSpec

    workspace, entrypoint = _place(kind, file)
    program = ProgramSpec(workspace=workspace, entrypoint=entrypoint, parameters=parameters)
    if kind == "exec":
        program.entrypoint_executable = True
    elif not file.endswith(_SUFFIXES[kind]):  # the server goes by the suffix
        interpreter, *flags = _INTERPRETERS[kind]
        program.entrypoint, program.entrypoint_executable = interpreter, True
        program.parameters[:] = [*flags, entrypoint, *parameters]
    return program


def _place(kind: str, file: str) -> tuple[str, str]:
    """Workspace and entrypoint: this directory, or that of a script given with its whole path."""
    elsewhere = os.path.isabs(file) and kind != "exec"
    workspace, entrypoint = os.path.split(file) if elsewhere else (os.getcwd(), file)
    if any(character.isspace() for character in workspace):
        raise click.UsageError(f"the directory {workspace!r} has blanks in its name; rename it")
    return workspace, entrypoint
