"""From `hai python FILE ARG… -- OPTIONS` to a task spec."""

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
from hai_tui.cli.submission.options import override
from hai_tui.cli.submission.sbatch_script import body_notes, directives, has_directives, wrapped
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
        options = _read_script(settings, spec, argv, options)
    return submit(settings, [override(settings, spec, options)], options)


def _read_script(
    settings: Settings, spec: TaskSpec, argv: Sequence[str], options: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Write what sbatch would read into the task; the options, with what only they can say. They win."""
    file = Path(program_path("bash", argv[0]))
    script = file.read_text("utf-8", "replace")
    if unread_directives := _OTHER_DIRECTIVES.findall(script):
        note(settings, text("submitted.unread", words=unread_directives[0], file=file.name))
    if not has_directives(script):
        return options
    job = sbatch_options.read_job(directives(script, file.name), file.name, os.getcwd())
    sbatch_options.fill(spec, job)
    nodes = options["nodes"] or spec.resource.node_count
    notes = [*job.notes, *sbatch_options.process_notes(job), *body_notes(script)]
    notes += _put_parts(settings, spec, sbatch_options.parts(job, nodes), options["group"])
    if job.equivalent_options:
        note(
            settings, text("sbatch.read", file=file.name, options=" ".join(job.equivalent_options))
        )
    for each in notes:
        note(settings, text("sbatch.note", file=file.name, note=each))
    path = (
        str(file.absolute()) if job.workspace else _workspace_and_entrypoint("bash", str(file))[1]
    )
    spec.spec.entrypoint, arguments = wrapped([path, *argv[1:]])
    spec.spec.entrypoint_executable = True
    spec.spec.parameters[:] = arguments
    return {
        **options,
        "after": options["after"] or tuple(job.after),
        "array": options["array"] or (None if options["each"] else job.array),
    }


def _put_parts(
    settings: Settings, spec: TaskSpec, parts: sbatch_options.Parts, group: str | None
) -> list[str]:
    """GPUs, CPUs and memory of a rank where nodes are shared; where they are given whole a rank has all of them."""
    name = (group or spec.resource.group or "default").partition("#")[0]
    if not any(parts):
        return []
    groups = call_server(settings, lambda client: client.nodes.groups())
    if any(each.name == name and not each.packed for each in groups):
        return [
            f"GPUs, CPUs and memory are left out; nodes of group {name} are given whole, with all that they have"
        ]
    spec.resource.gpu, spec.resource.cpu, spec.resource.memory = parts
    return []


def program_spec(kind: str, argv: Sequence[str]) -> TaskSpec:
    """A spec with the program, run in the directory that the user stands in."""
    from hai.v1.task_spec_pb2 import TaskSpec

    file = program_path(kind, argv[0])
    spec = TaskSpec(version=2, name=Path(file).name, spec=_program(kind, file, argv[1:]))
    spec.resource.node_count = 1
    return spec


def _program(kind: str, file: str, parameters: Sequence[str]) -> ProgramSpec:
    from hai.v1.task_spec_pb2 import ProgramSpec

    workspace, entrypoint = _workspace_and_entrypoint(kind, file)
    program = ProgramSpec(workspace=workspace, entrypoint=entrypoint, parameters=parameters)
    if kind == "exec":
        program.entrypoint_executable = True
    elif not file.endswith(_SUFFIXES[kind]):  # the server goes by the suffix
        interpreter, *flags = _INTERPRETERS[kind]
        program.entrypoint, program.entrypoint_executable = interpreter, True
        program.parameters[:] = [*flags, entrypoint, *parameters]
    return program


def _workspace_and_entrypoint(kind: str, file: str) -> tuple[str, str]:
    """Workspace and entrypoint: this directory, or that of a script given with its whole path."""
    elsewhere = os.path.isabs(file) and kind != "exec"
    workspace, entrypoint = os.path.split(file) if elsewhere else (os.getcwd(), file)
    if any(character.isspace() for character in workspace):
        raise click.UsageError(f"the directory {workspace!r} has blanks in its name; rename it")
    return workspace, entrypoint
