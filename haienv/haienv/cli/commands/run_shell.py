"""Implements `haienv run`, `shell` and `init`: run programs and shells in an environment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from haienv.activate import shells
from haienv.activate.activation import Activation, compute_activation
from haienv.activate.shells import SHELLS, activation_script
from haienv.cli.common import EnvCommand, Settings, complete_names, find_environment
from haienv.errors import NotFound, UsageError

_FISH_SOURCE = """function source
    if test "$argv[1]" = haienv
        builtin source {file} $argv[2..-1]
    else
        builtin source $argv
    end
end
"""
_STARTUP_OPTIONS = {
    "bash": ("--rcfile", str(Path(shells.__file__).with_name("enter.bash")), "-i"),
    "fish": ("-C", "printf %s $_HAIENV_ENTER | builtin source; set -e _HAIENV_ENTER"),
}
_INIT = """Print what a shell's start-up file needs.

bash and zsh need nothing if haienv is on PATH; fish needs this line in config.fish:

\b
  haienv init fish | source

For completion add, in bash: eval "$(haienv init bash)"; in zsh: eval "$(haienv init zsh)".
"""


@click.command(
    "run",
    cls=EnvCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("name", shell_complete=complete_names)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_obj
def run(settings: Settings, name: str, command: tuple[str, ...]) -> int:
    """Run a program in an environment: haienv run NAME -- python train.py

    The program replaces haienv, so signals and the exit code are those of the program.
    """
    arguments = command[1:] if command[0] == "--" else command
    if not arguments:
        raise UsageError("a command is required", "haienv run NAME -- COMMAND")
    home, environment = find_environment(name)
    variables = compute_activation(home, environment).apply_to(os.environ)
    program = shutil.which(arguments[0], path=variables["PATH"])
    if program is None:
        raise NotFound(f"{environment} has no program {arguments[0]!r}, and it is not on PATH")
    os.execve(program, list(arguments), variables)


@click.command("shell", cls=EnvCommand)
@click.argument("name", shell_complete=complete_names)
@click.pass_obj
def shell(settings: Settings, name: str) -> int:
    """Start a shell in an environment; `exit` ends it."""
    home, environment = find_environment(name)
    program = shutil.which(os.environ.get("SHELL") or "sh")
    if program is None:
        raise NotFound(f"cannot find the shell {os.environ.get('SHELL')!r}", "set SHELL")
    settings.print_note(f"{environment}: `exit` ends the shell")
    arguments, variables = _shell_command(
        program, compute_activation(home, environment, follow=True)
    )
    os.execve(program, arguments, variables)


def _shell_command(program: str, activation: Activation) -> tuple[list[str], dict[str, str]]:
    """Return command and variables of a shell. bash and fish activate last: their start-up files may set PATH."""
    name = os.path.basename(program)
    if name not in _STARTUP_OPTIONS:
        return [program], activation.apply_to(os.environ)
    return [program, *_STARTUP_OPTIONS[name]], {
        **os.environ,
        "_HAIENV_ENTER": activation_script(name, activation),
    }


@click.command("init", cls=EnvCommand, help=_INIT)
@click.argument("which", type=click.Choice(SHELLS))
@click.pass_obj
def init(settings: Settings, which: str) -> int:
    """Click shows _INIT."""
    from click.shell_completion import get_completion_class

    from haienv.activate.shells import quote_fish
    from haienv.cli.main import make_group

    kind = get_completion_class(which)
    assert kind is not None
    text = str(kind(make_group(), {}, "haienv", "_HAIENV_COMPLETE").source())
    if which == "fish":
        file = shutil.which("haienv.fish") or "haienv.fish"
        text += _FISH_SOURCE.format(file=quote_fish(file))
    settings.print_result({"text": text}, text)
    return 0
