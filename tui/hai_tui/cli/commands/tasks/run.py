"""`hai run` and `hai validate-schema`: tasks written in yaml."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.completion import files as complete_files
from hai_tui.cli.output.output import dump, note
from hai_tui.cli.settings import Settings
from hai_tui.cli.submission.options import SubmitCommand, override, submit_options
from hai_tui.cli.submission.submission import note_ineffective_options, submit
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.taskfile.spec import Document
    from hai.v1.task_spec_pb2 import TaskSpec

_FILES = click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_files
)

_RUN_HELP = """Submit tasks that are written in yaml (schema version 2); - reads standard input.

A file may hold several, with --- between them. All files are read and checked before the first is
sent. Options replace what the files say. A workspace such as . is meant from the current directory.
A task that names no environment gets the active one (--no-inherit: none).

\b
Examples:
  hai run train.yaml
  hai run train.yaml -n 4 -p HIGH -e LR=0.1 -f
  hai describe 12 | hai run - --name again
  hai describe $(hai list -q --tag sweep --outcome failed) | hai run -
  hai run a.yaml b.yaml --dry-run
"""

_VALIDATE_HELP = """Check yaml files without a server: every violation is listed at once, with its place.

The same code checks what `hai run` sends, and the server once more; only what a cluster has (groups,
quotas, rights, names that are taken) is left to the server.

\b
Examples:
  hai validate-schema train.yaml
  hai validate-schema --schema > hai-task.schema.json
"""


@click.command("run", cls=SubmitCommand, help=_RUN_HELP)
@_FILES
@submit_options
@click.pass_obj
def run(settings: Settings, /, files: tuple[str, ...], **options: Any) -> int:
    """The function behind the command."""
    specs = [spec for file in files for spec in _overridden(settings, file, options)]
    for spec in specs:
        _settle(spec)
    return submit(settings, specs, options)


def _overridden(settings: Settings, file: str, options: Mapping[str, Any]) -> list[TaskSpec]:
    """The tasks of a file as the options want them. Raises Invalid with every violation of the file."""
    from hai.client.taskfile.spec import require_valid

    documents, specs = _read(file), []
    for document in documents:
        specs.append(type(document.spec)())
        specs[-1].CopyFrom(document.spec)
        override(settings, specs[-1], options)
    pairs = zip(documents, specs, strict=True)
    found = [each for document, spec in pairs for each in document.violations(spec)]
    require_valid(documents[0].source, found)
    return specs


def _settle(spec: TaskSpec) -> None:
    """A workspace such as `.` or `~/x` is a place here: the server and its nodes stand elsewhere."""
    place = spec.spec.workspace
    if place and "://" not in place:
        spec.spec.workspace = os.path.abspath(os.path.expanduser(place))


@click.command("validate-schema", cls=HaiCommand, help=_VALIDATE_HELP)
@click.argument("files", metavar="FILE...", nargs=-1, shell_complete=complete_files)
@click.option("--schema", is_flag=True, help="Print the JSON Schema instead.")
@click.pass_obj
def validate_schema(settings: Settings, files: tuple[str, ...], schema: bool) -> int:
    """The function behind the command."""
    if schema:
        from hai.client.taskfile.spec import json_schema

        dump(settings, json_schema())
        return 0
    if not files:
        raise click.UsageError("give at least one FILE, or --schema")
    return _worst([_check(settings, file) for file in files])


def _check(settings: Settings, file: str) -> int:
    from hai.client.errors import HaiError
    from hai.client.taskfile.spec import require_valid
    from hai_tui.cli.errors import exit_code, print_error

    try:
        documents = _read(file)
        found = [each for document in documents for each in document.violations()]
        require_valid(documents[0].source, found)
    except (HaiError, click.UsageError) as error:
        print_error(error, as_json=settings.json)  # it names the file
        return exit_code(error)
    note(settings, text("schema.valid", source=file))
    for document in documents:
        note_ineffective_options(settings, document.spec)
    return 0


def _worst(codes: list[int]) -> int:
    return next((code for code in codes if code), 0)


def _read(file: str) -> Sequence[Document]:
    from hai.client.taskfile.spec import read_documents

    if file == "-":
        return read_documents(getattr(sys.stdin, "buffer", sys.stdin))
    path = Path(file)
    if path.is_dir():
        raise click.UsageError(f"{file!r} is a directory, not a task file; nothing was sent")
    if not path.exists():  # a pipe, as of <(…), is as good as a file
        raise click.UsageError(f"there is no file {file!r}; nothing was sent")
    return read_documents(path)
