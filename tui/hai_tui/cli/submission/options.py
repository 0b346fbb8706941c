"""The options of `hai run` and of `hai python|bash|exec … --`, and how they change a task."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.completion import complete_groups, complete_tasks
from hai_tui.cli.output.output import note
from hai_tui.cli.settings import Settings
from hai_tui.cli.submission.dependencies import After
from hai_tui.cli.submission.sweep import ArrayType, EachType
from hai_tui.formatting.values import Priority
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.v1.task_spec_pb2 import TaskSpec

_OPTIONS = (
    click.option(
        "-n", "--nodes", type=click.IntRange(1), metavar="N", help="Whole nodes. Default: 1."
    ),
    click.option(
        "--gpus",
        type=click.IntRange(0),
        metavar="N",
        help="GPUs of each rank; it never starts on a node with fewer.",
    ),
    click.option(
        "-g", "--group", shell_complete=complete_groups, help="Node group, or group#zone."
    ),
    click.option("-p", "--priority", type=Priority(), help="A level such as HIGH, or its number."),
    click.option("-i", "--image", help="Image name or registry path."),
    click.option(
        "-e",
        "--env",
        multiple=True,
        metavar="K[=V]",
        help="A variable for the program; without =V it is copied from this shell. Repeatable.",
    ),
    click.option(
        "--env-file",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        help="Lines K=V; # begins a comment. Values are taken as they are.",
    ),
    click.option("--name", help="Name of the task."),
    click.option("--tag", multiple=True, help="A label. Repeatable."),
    click.option(
        "--after",
        type=After(),
        shell_complete=complete_tasks,
        multiple=True,
        help="Start when this task (tag:TAG: all of them) has succeeded; or :failed, :ended. Repeatable.",
    ),
    click.option(
        "--array",
        type=ArrayType(),
        help="A task for each number, which it finds in HAI_ARRAY_INDEX; %N: so many at a time.",
    ),
    click.option(
        "--each",
        type=EachType(),
        multiple=True,
        help="A task for each value, which it finds in the variable; \\, is a comma in a value; "
        "repeated, for each combination.",
    ),
    click.option(
        "--at-most",
        type=click.IntRange(1),
        metavar="N",
        help="Of several tasks, so many at a time: each starts when the one N before it has ended.",
    ),
    click.option(
        "--options",
        "assignments",
        multiple=True,
        metavar="A.B=V",
        help="Any field: max_retries=2, time_limit=2h, resource.memory=8. Repeatable.",
    ),
    click.option(
        "--no_inherit",
        "--no-inherit",
        is_flag=True,
        help="Leave out the active environment (HF_ENV_NAME).",
    ),
    click.option(
        "-f", "--follow", is_flag=True, help="Print the log; exit with the task's exit code."
    ),
    click.option(
        "--no-push", is_flag=True, help="In a workspace: submit the directory, do not push it."
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Print the yaml and what the scheduler would do with it; submit nothing.",
    ),
)


class SubmitCommand(HaiCommand):
    """A command that submits tasks. An unknown option of another system raises an error that names the option here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from hai_tui.cli.migration_hints import OPTION_EQUIVALENTS

            if error.option_name not in OPTION_EQUIVALENTS:
                raise
            hint = OPTION_EQUIVALENTS[error.option_name]
            raise click.UsageError(
                f"no such option {error.option_name!r}; here that is {hint}", ctx=ctx
            ) from None


def submit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that submits."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def apply_options(settings: Settings, spec: TaskSpec, options: Mapping[str, Any]) -> TaskSpec:
    """Write the options into the spec. --options come last and win.

    A task that names no environment gets the one that is active in this shell.
    """
    from hai.client.taskfile.spec import apply_option

    if options["nodes"] is not None:
        spec.resource.node_count = options["nodes"]
    if options["gpus"] is not None:
        spec.resource.gpu = options["gpus"]
    if options["priority"] is not None:
        spec.priority = options["priority"]
    spec.resource.group = options["group"] or spec.resource.group
    spec.resource.image = options["image"] or spec.resource.image
    spec.name = options["name"] or spec.name
    spec.options.tags.extend(options["tag"])
    spec.spec.environments.update(read_variables(options["env_file"], options["env"]))
    for assignment in options["assignments"]:
        apply_option(spec, _field_path(assignment))
    if not spec.options.py_venv and not options["no_inherit"]:
        _inherit_environment(settings, spec)
    return spec


def _field_path(assignment: str) -> str:
    """Return the path from the root of the task. A field of `options` may be given without that word."""
    from hai.client.taskfile.fields import message_fields
    from hai.v1.task_spec_pb2 import OptionsSpec, TaskSpec

    key = assignment.partition("=")[0].strip()
    head, dot, _ = key.partition(".")
    if head in message_fields(OptionsSpec.DESCRIPTOR):
        return f"options.{assignment}"
    top = dot or head in message_fields(TaskSpec.DESCRIPTOR)
    return assignment if top else f"options.{assignment}"


def _inherit_environment(settings: Settings, spec: TaskSpec) -> None:
    """Let the task use the environment that is active in this shell."""
    name, owner = os.environ.get("HF_ENV_NAME"), os.environ.get("HF_ENV_OWNER")
    if name:
        spec.options.py_venv = f"{name}[{owner}]" if owner else name
        note(settings, text("env.inherited", env=spec.options.py_venv))


def read_variables(files: Sequence[str], assignments: Sequence[str]) -> dict[str, str]:
    """Return the variables of --env-file and -e. Those of -e win. Values are not interpreted."""
    result: dict[str, str] = {}
    for file in files:
        result |= _read_file(file)
    return result | dict(_read_variable(assignment) for assignment in assignments)


def _read_file(file: str) -> dict[str, str]:
    """Read the variables of an --env-file. Raise UsageError for an invalid line."""
    result: dict[str, str] = {}
    for number, line in enumerate(Path(file).read_text("utf-8-sig").splitlines(), 1):
        name, equals, value = line.strip().partition("=")
        if not line.strip() or line.strip().startswith("#"):
            continue
        if not name or not equals:
            raise click.UsageError(f"{file}, line {number}: {line.strip()!r} is not NAME=VALUE")
        result[name] = value
    return result


def _read_variable(assignment: str) -> tuple[str, str]:
    """Parse NAME=VALUE; NAME alone is copied from this shell. Raise UsageError."""
    name, equals, value = assignment.partition("=")
    if not name:
        raise click.UsageError(f"{assignment!r} names no variable; write NAME=VALUE")
    if not equals and name not in os.environ:
        raise click.UsageError(f"-e {name}: this shell has no such variable; write {name}=VALUE")
    return name, value if equals else os.environ[name]
