"""`hai python|bash|exec FILE ARG…`: run a program here, simulate the cluster here, or submit it.

Arguments stay a list from the shell to the program: nothing is joined, split or quoted on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hai_tui.cli.completion import complete_files
from hai_tui.cli.settings import Settings
from hai_tui.cli.submission.options import SubmitCommand, submit_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MODES = {"--": "submit", "++": "simulate"}
_SIMULATED = {"suspend_seconds", "life_state", "env", "env_file"}
_KEY = "hai.program"

_HELP = """{what}

\b
  hai {command} FILE ARG...             run it here
  hai {command} FILE ARG... ++ OPTION…  simulate the cluster here, see -ss, -ls
  hai {command} FILE ARG... -- OPTION…  submit it to the cluster

Options of hai stand after the separator; everything before it belongs to the program and reaches it
unchanged. Run here, the exit code is the program's own.

\b
Examples:
  hai {command} {file} --lr 0.1
  hai {command} {file} --lr 0.1 ++ -ss 30
  hai {command} {file} --lr 0.1 -- -n 2 -p HIGH --name first -f
  hai {command} {file} -- -e 'T=a b; $(x)' --options max_retries=2 --dry-run
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A command line, taken apart: what to run, in which mode."""

    argv: tuple[str, ...]
    mode: str  # local, simulate or submit


class ProgramCommand(SubmitCommand):
    """Takes the program and its arguments away before click reads options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options are what follows the separator; a leading --help is ours as well."""
        if args[:1] in (["-h"], ["--help"], []):
            return super().parse_args(ctx, args or ["--help"])
        call, options = split_arguments(args)
        ctx.meta[_KEY] = call
        return super().parse_args(ctx, options)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Before the separator files, for the program; behind it options of hai."""
        call: Call | None = ctx.meta.get(_KEY)
        if incomplete.startswith("-") or (call is not None and call.mode != "local"):
            return super().shell_complete(ctx, incomplete)
        return complete_files(ctx, None, incomplete)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """How it is written."""
        return ["FILE [ARG]... [-- OPTIONS | ++ OPTIONS]"]


def split_arguments(args: list[str]) -> tuple[Call, list[str]]:
    """The program's argv with its mode, and the options of hai. Raises UsageError."""
    separators = [i for i, arg in enumerate(args) if arg in _MODES]
    if len(separators) > 1:
        raise click.UsageError(
            "only one of -- and ++ may stand in the line, and once; "
            "a program that takes -- itself is submitted with `hai run`"
        )
    cut = separators[0] if separators else len(args)
    argv = tuple(args[:cut])
    if not argv or argv[0].startswith("-"):
        raise click.UsageError("the first argument is the FILE; options of hai stand after --")
    return Call(argv, _MODES[args[cut]] if separators else "local"), args[cut + 1 :]


def _command(name: str, program_kind: str, file: str) -> Callable[..., click.Command]:
    help = _HELP.format(what=program_kind, command=name, file=file)
    settings = {"help_option_names": ["-h", "--help"]}
    return click.command(name, cls=ProgramCommand, help=help, context_settings=settings)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    extra = (
        click.option(
            "-ss",
            "--suspend_seconds",
            type=click.FloatRange(0),
            metavar="N",
            help="Simulate a suspend after so many seconds (++).",
        ),
        click.option(
            "-ls", "--life_state", type=int, default=0, help="Whole-life state to begin with."
        ),
    )
    for option in reversed(extra):
        function = option(function)
    return click.pass_context(submit_options(function))


def _start(ctx: click.Context, kind: str, options: dict[str, Any]) -> int:
    call: Call = ctx.meta[_KEY]
    _refuse_notebook(call.argv[0])
    if call.mode == "submit":
        from hai_tui.cli.submission.program_spec import submit_program

        return submit_program(ctx.ensure_object(Settings), kind, call.argv, options)
    _refuse_submit_options(ctx)
    from hai_tui.cli.submission.local_run import run_here

    return run_here(kind, call.argv, options)


def _refuse_notebook(file: str) -> None:
    if file.endswith(".ipynb"):
        name = file.removesuffix(".ipynb")
        line = (
            f"exec python3 -m hai_jupyter.run_notebook {quote(file)} {quote(name + '.out.ipynb')}"
        )
        raise click.UsageError(
            f"{file} is a notebook, which no interpreter runs; execute it with `hai {line}`, "
            "here or, with `--` behind it, on the cluster (the extra [jupyter] is needed there)"
        )


def _refuse_submit_options(ctx: click.Context) -> None:
    for name in ctx.params:
        from_command_line = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if from_command_line and name not in _SIMULATED:
            raise click.UsageError(f"--{name.replace('_', '-')} is for submission: use -- not ++")


@_command("python", "Run a Python file here, simulate it, or submit it.", "train.py")
@_options
def python(ctx: click.Context, **options: Any) -> int:
    """The function behind the command."""
    return _start(ctx, "python", options)


@_command("bash", "Run a shell script here, simulate it, or submit it.", "train.sh")
@_options
def bash(ctx: click.Context, **options: Any) -> int:
    """The function behind the command."""
    return _start(ctx, "bash", options)


@_command("exec", "Run any program here, simulate it, or submit it.", "./train")
@_options
def execute(ctx: click.Context, **options: Any) -> int:
    """The function behind the command."""
    return _start(ctx, "exec", options)
