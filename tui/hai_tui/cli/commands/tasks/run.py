"""`hai run` and `hai validate-schema`: tasks written in yaml."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.completion import complete_files
from hai_tui.cli.output.output import dump, note
from hai_tui.cli.settings import Settings
from hai_tui.cli.submission.options import SubmitCommand, apply_options, submit_options
from hai_tui.cli.submission.submission import note_ineffective_options, submit
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.taskfile.spec import Document
    from hai.v1.task_spec_pb2 import TaskSpec

_FILES = click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_files
)


@click.command("run", cls=SubmitCommand)
@_FILES
@submit_options
@click.pass_obj
def run(settings: Settings, /, files: tuple[str, ...], **options: Any) -> int:
    """Submit tasks that are written in yaml (schema version 2); - reads standard input.

    A file may hold several, with --- between them. All files are read and checked before the first is
    sent. Options replace what the files say. A workspace such as . is relative to the current directory.
    A task that names no environment gets the active one (--no-inherit: none).

    \b
    Examples:
      hai run train.yaml
      hai run train.yaml -n 4 -p HIGH -e LR=0.1 -f
      hai describe 12 | hai run - --name again
      hai describe $(hai list -q --tag sweep --outcome failed) | hai run -
      hai run a.yaml b.yaml --dry-run
    """
    specs = [spec for file in files for spec in _specs_of(settings, file, options)]
    for spec in specs:
        _make_workspace_absolute(spec)
    return submit(settings, specs, options)


def _specs_of(settings: Settings, file: str, options: Mapping[str, Any]) -> list[TaskSpec]:
    """Return the tasks of a file with the options applied. Raise Invalid with every violation in the file."""
    from hai.client.taskfile.spec import require_valid

    documents, specs = _read_documents(file), []
    for document in documents:
        specs.append(type(document.spec)())
        specs[-1].CopyFrom(document.spec)
        apply_options(settings, specs[-1], options)
    pairs = zip(documents, specs, strict=True)
    violations = [each for document, spec in pairs for each in document.violations(spec)]
    require_valid(documents[0].source, violations)
    return specs


def _make_workspace_absolute(spec: TaskSpec) -> None:
    """Make a workspace such as `.` or `~/x` absolute: it names a directory of this machine, not of the server."""
    workspace = spec.spec.workspace
    if workspace and "://" not in workspace:
        spec.spec.workspace = os.path.abspath(os.path.expanduser(workspace))


@click.command("validate-schema", cls=HaiCommand)
@click.argument("files", metavar="FILE...", nargs=-1, shell_complete=complete_files)
@click.option("--schema", is_flag=True, help="Print the JSON Schema instead.")
@click.pass_obj
def validate_schema(settings: Settings, files: tuple[str, ...], schema: bool) -> int:
    """Check yaml files without a server: every violation is listed at once, with its workspace.

    The same code checks what `hai run` sends, and the server once more; only what a cluster has (groups,
    quotas, rights, names that are taken) is left to the server.

    \b
    Examples:
      hai validate-schema train.yaml
      hai validate-schema --schema > hai-task.schema.json
    """
    if schema:
        from hai.client.taskfile.spec import json_schema

        dump(settings, json_schema())
        return 0
    if not files:
        raise click.UsageError("give at least one FILE, or --schema")
    return _first_failure([_validate_file(settings, file) for file in files])


def _validate_file(settings: Settings, file: str) -> int:
    """Check a file. Print the result and return the exit code."""
    from hai.client.errors import HaiError
    from hai.client.taskfile.spec import require_valid
    from hai_tui.cli.errors import exit_code, print_error

    try:
        documents = _read_documents(file)
        violations = [each for document in documents for each in document.violations()]
        require_valid(documents[0].source, violations)
    except (HaiError, click.UsageError) as error:
        print_error(error, as_json=settings.json)
        return exit_code(error)
    note(settings, text("schema.valid", source=file))
    for document in documents:
        note_ineffective_options(settings, document.spec)
    return 0


def _first_failure(codes: list[int]) -> int:
    return next((code for code in codes if code), 0)


def _read_documents(file: str) -> Sequence[Document]:
    """Read the tasks of a file, or of stdin for `-`. Raise UsageError if there is no such file."""
    from hai.client.taskfile.spec import read_documents

    if file == "-":
        return read_documents(getattr(sys.stdin, "buffer", sys.stdin))
    path = Path(file)
    if path.is_dir():
        raise click.UsageError(f"{file!r} is a directory, not a task file; nothing was sent")
    if not path.exists():  # `exists`, not `is_file`: the shell passes a pipe for <(…)
        raise click.UsageError(f"there is no file {file!r}; nothing was sent")
    return read_documents(path)
