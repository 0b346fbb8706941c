"""`hai python|bash|exec FILE ARG…`: runs a program here, simulates the cluster here, or submits it.

The arguments stay a list from the shell to the program: nothing joins, splits or quotes them.
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
_CALL_KEY = "hai.program"

_HELP = """{what}

\b
  hai {command} FILE ARG...             run it here
  hai {command} FILE ARG... ++ OPTION…  simulate the cluster here, see -ss, -ls
  hai {command} FILE ARG... -- OPTION…  submit it to the cluster

Options of hai follow the separator; everything before it is passed to the program unchanged. A program
that runs here also gives its exit code.

\b
Examples:
  hai {command} {file} --lr 0.1
  hai {command} {file} --lr 0.1 ++ -ss 30
  hai {command} {file} --lr 0.1 -- -n 2 -p HIGH --name first -f
  hai {command} {file} -- -e 'T=a b; $(x)' --options max_retries=2 --dry-run
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A command line split into the program and the mode."""

    argv: tuple[str, ...]
    mode: str  # local, simulate or submit


class ProgramCommand(SubmitCommand):
    """Removes the program and its arguments before click reads options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Pass only the arguments after the separator to click, or a leading --help."""
        if args[:1] in (["-h"], ["--help"], []):
            return super().parse_args(ctx, args or ["--help"])
        call, options = split_arguments(args)
        ctx.meta[_CALL_KEY] = call
        return super().parse_args(ctx, options)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete files before the separator, and options of hai after it."""
        call: Call | None = ctx.meta.get(_CALL_KEY)
        if incomplete.startswith("-") or (call is not None and call.mode != "local"):
            return super().shell_complete(ctx, incomplete)
        return complete_files(ctx, None, incomplete)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["FILE [ARG]... [-- OPTIONS | ++ OPTIONS]"]


def split_arguments(args: list[str]) -> tuple[Call, list[str]]:
    """Return the program's arguments with the mode, and the options of hai. Raise UsageError."""
    separators = [i for i, arg in enumerate(args) if arg in _MODES]
    if len(separators) > 1:
        raise click.UsageError(
            "use either -- or ++, and only once; "
            "a program that takes -- itself is submitted with `hai run`"
        )
    cut = separators[0] if separators else len(args)
    argv = tuple(args[:cut])
    if not argv or argv[0].startswith("-"):
        raise click.UsageError("the first argument is the FILE; options of hai follow --")
    return Call(argv, _MODES[args[cut]] if separators else "local"), args[cut + 1 :]


def _program_command(name: str, program_kind: str, file: str) -> Callable[..., click.Command]:
    help = _HELP.format(what=program_kind, command=name, file=file)
    settings = {"help_option_names": ["-h", "--help"]}
    return click.command(name, cls=ProgramCommand, help=help, context_settings=settings)


def _program_options(function: Callable[..., Any]) -> Callable[..., Any]:
    simulation_options = (
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
    for option in reversed(simulation_options):
        function = option(function)
    return click.pass_context(submit_options(function))


def _run_call(ctx: click.Context, kind: str, options: dict[str, Any]) -> int:
    call: Call = ctx.meta[_CALL_KEY]
    _refuse_notebook(call.argv[0])
    if call.mode == "submit":
        from hai_tui.cli.submission.program_spec import submit_program

        return submit_program(ctx.ensure_object(Settings), kind, call.argv, options)
    _refuse_submit_options(ctx)
    from hai_tui.cli.submission.local_run import exec_program

    return exec_program(kind, call.argv, options)


def _refuse_notebook(file: str) -> None:
    if file.endswith(".ipynb"):
        name = file.removesuffix(".ipynb")
        line = (
            f"exec python3 -m hai_jupyter.run_notebook {quote(file)} {quote(name + '.out.ipynb')}"
        )
        raise click.UsageError(
            f"{file} is a notebook, which interpreters cannot run; execute it with `hai {line}`, "
            "here or, with `--` behind it, on the cluster (the extra [jupyter] is needed there)"
        )


def _refuse_submit_options(ctx: click.Context) -> None:
    for name in ctx.params:
        from_command_line = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if from_command_line and name not in _SIMULATED:
            raise click.UsageError(f"--{name.replace('_', '-')} is for submission: use -- not ++")


@_program_command("python", "Run a Python file here, simulate it, or submit it.", "train.py")
@_program_options
def python(ctx: click.Context, **options: Any) -> int:
    return _run_call(ctx, "python", options)


@_program_command("bash", "Run a shell script here, simulate it, or submit it.", "train.sh")
@_program_options
def bash(ctx: click.Context, **options: Any) -> int:
    return _run_call(ctx, "bash", options)


@_program_command("exec", "Run any program here, simulate it, or submit it.", "./train")
@_program_options
def execute(ctx: click.Context, **options: Any) -> int:
    return _run_call(ctx, "exec", options)
