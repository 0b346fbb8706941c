"""Makes a task of `hai python FILE ARG… -- OPTIONS`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.output.output import note
from hai_tui.cli.settings import Settings, call_server
from hai_tui.cli.submission import sbatch_options
from hai_tui.cli.submission.local_run import program_path
from hai_tui.cli.submission.options import apply_options
from hai_tui.cli.submission.sbatch_script import (
    body_notes,
    has_directives,
    read_directives,
    wrap_script,
)
from hai_tui.cli.submission.submission import submit
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec

_OTHER_DIRECTIVES = re.compile(r"^#(?:PBS|BSUB)\b", re.MULTILINE)
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
        options = _apply_directives(settings, spec, argv, options)
    return submit(settings, [apply_options(settings, spec, options)], options)


def _apply_directives(
    settings: Settings, spec: TaskSpec, argv: Sequence[str], options: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Write the #SBATCH lines of a script into the task.

    Return the options of the command line, with dependencies and an array of the script if none were given.
    """
    file = Path(program_path("bash", argv[0]))
    script = file.read_text("utf-8", "replace")
    if unread_directives := _OTHER_DIRECTIVES.findall(script):
        note(settings, text("submitted.unread", words=unread_directives[0], file=file.name))
    if not has_directives(script):
        return options
    job = sbatch_options.read_job(read_directives(script, file.name), file.name, os.getcwd())
    sbatch_options.fill_spec(spec, job)
    nodes = options["nodes"] or spec.resource.node_count
    notes = [*job.notes, *sbatch_options.process_notes(job), *body_notes(script)]
    notes += _set_node_parts(
        settings, spec, sbatch_options.node_parts(job, nodes), options["group"]
    )
    if job.equivalent_options:
        note(
            settings, text("sbatch.read", file=file.name, options=" ".join(job.equivalent_options))
        )
    for line in notes:
        note(settings, text("sbatch.note", file=file.name, note=line))
    if job.workspace:  # --chdir: the task does not run in the directory of the script
        path = str(file.absolute())
    else:
        _, path = _workspace_and_entrypoint("bash", str(file))
    spec.spec.entrypoint, arguments = wrap_script([path, *argv[1:]])
    spec.spec.entrypoint_executable = True
    spec.spec.parameters[:] = arguments
    return {
        **options,
        "after": options["after"] or tuple(job.after),
        "array": options["array"] or (None if options["each"] else job.array),
    }


def _set_node_parts(
    settings: Settings, spec: TaskSpec, parts: sbatch_options.NodeParts, group: str | None
) -> list[str]:
    """Set GPUs; set CPUs and memory if the nodes of the group are shared. Otherwise say that they are left out."""
    name = (group or spec.resource.group or "default").partition("#")[0]
    spec.resource.gpu, *others = parts
    if not any(others):
        return []
    groups = call_server(settings, lambda client: client.nodes.groups())
    if any(g.name == name and not g.packed for g in groups):
        return [
            f"CPUs and memory are left out; nodes of group {name} are given whole, with all that they have"
        ]
    spec.resource.cpu, spec.resource.memory = others
    return []


def program_spec(kind: str, argv: Sequence[str]) -> TaskSpec:
    """Return a task that runs the program in the current directory."""
    from hai.v1.task_spec_pb2 import TaskSpec

    file = program_path(kind, argv[0])
    spec = TaskSpec(version=2, name=Path(file).name, spec=_program(kind, file, argv[1:]))
    spec.resource.node_count = 1
    return spec


def _program(kind: str, file: str, parameters: Sequence[str]) -> ProgramSpec:
    """Return the program. Without the usual suffix of its file, its interpreter is named explicitly."""
    from hai.v1.task_spec_pb2 import ProgramSpec

    workspace, entrypoint = _workspace_and_entrypoint(kind, file)
    program = ProgramSpec(workspace=workspace, entrypoint=entrypoint, parameters=parameters)
    if kind == "exec":
        program.entrypoint_executable = True
    elif not file.endswith(
        _SUFFIXES[kind]
    ):  # by the suffix, the server would choose another interpreter
        interpreter, *flags = _INTERPRETERS[kind]
        program.entrypoint, program.entrypoint_executable = interpreter, True
        program.parameters[:] = [*flags, entrypoint, *parameters]
    return program


def _workspace_and_entrypoint(kind: str, file: str) -> tuple[str, str]:
    """Return the current directory and the file. A script with an absolute path runs in its own directory."""
    has_own_workspace = os.path.isabs(file) and kind != "exec"
    workspace, entrypoint = os.path.split(file) if has_own_workspace else (os.getcwd(), file)
    if any(character.isspace() for character in workspace):
        raise click.UsageError(f"the directory {workspace!r} has spaces in its name; rename it")
    return workspace, entrypoint
