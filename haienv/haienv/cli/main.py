"""Runs the `haienv` command, which is also `hai env …`: the table of commands, and the exit codes of errors.

The exit codes are 0 success, 1 failure, 2 usage, 3 not found, 4 denied, 5 unreachable, 124 time-out, 130 interrupted.
`run` and `shell` return the code of the program that they ran.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from hai.command_line import LazyGroup
from hai.redaction import redact
from haienv.errors import DISK_FULL_ERRNOS, DISK_FULL_HINT, DiskFull, EnvError

COMMANDS: dict[str, tuple[str, str]] = {
    "create": ("create:create", "Create an environment."),
    "list": ("inspect:listing", "List environments."),
    "info": ("inspect:info", "Show details of an environment."),
    "install": ("packages:install", "Add packages to an environment."),
    "uninstall": ("packages:uninstall", "Remove packages from an environment."),
    "upgrade": ("packages:upgrade", "Upgrade packages, the parent or the Python; or roll back."),
    "run": ("run_shell:run", "Run a program in an environment."),
    "shell": ("run_shell:shell", "Start a shell in an environment."),
    "init": ("run_shell:init", "Print what a shell's start-up file needs."),
    "config": ("config:config", "Show or change directories, variables, visibility, description."),
    "clone": ("create:clone", "Create another environment with the same packages."),
    "rename": ("packages:rename", "Rename an environment."),
    "remove": ("remove_gc:remove", "Remove environments."),
    "freeze": ("inspect:freeze", "Print packages as name==version."),
    "lock": ("inspect:lock", "Print the lock, with hashes."),
    "diff": ("inspect:diff", "Compare two environments by package."),
    "which": ("inspect:which", "Print the path of the interpreter, or of a program."),
    "export": ("export_import:export", "Write an environment to an archive."),
    "import": (
        "export_import:import_",
        "Create an environment from an archive, or all of a venv.db of HAI.",
    ),
    "pack": ("pack:pack", "Pack an image that nodes unpack onto their local disks."),
    "kernel": ("kernel:kernel", "Install or remove kernels for Jupyter."),
    "push": ("remote:push", "Build a local environment on the cluster."),
    "pull": ("remote:pull", "Build an environment of the cluster here."),
    "build": ("remote:build", "Build on the cluster, from a lock or requirements."),
    "verify": ("verify:verify", "Compare files with those that were installed."),
    "doctor": ("verify:doctor", "Find what is broken or left over; --fix repairs it."),
    "history": ("verify:history", "List changes to your environments."),
    "gc": ("remove_gc:gc", "Delete layers that nothing uses."),
    "pip": ("packages:pip", "Run pip commands in the active environment."),
}
"""The module and function of each command, and its description in `haienv --help`."""

_MISSING_EXTRA_HINT = "install the missing part: pip install 'hai-platform[env]'"
_EPILOG = (
    "Activate an environment with `source haienv NAME` (bash, zsh, fish: see `haienv init --help`)."
)


def make_group() -> click.Group:
    """Return the click group of all commands."""
    commands = LazyGroup(
        name="haienv",
        package="haienv.cli.commands",
        targets={name: target for name, (target, _) in COMMANDS.items()},
        summary=lambda name: COMMANDS[name][1],
        help="Python environments for tasks: layered, locked, shared.",
        epilog=_EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
        invoke_without_command=True,
        callback=_help_without_command,
    )
    return click.version_option(package_name="hai-platform")(commands)


@click.pass_context
def _help_without_command(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None, program: str = "haienv") -> int:
    """Run one command line, and return the exit code. `program` is the name in help texts."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.platform == "win32":
        return _report(
            EnvError("haienv does not run on Windows", "use it in WSL, or on a login node"),
            arguments,
        )
    try:
        return _run(arguments, program)
    except (EnvError, click.ClickException, OSError) as error:
        if isinstance(error, BrokenPipeError):
            from hai.command_line import closed_pipe_exit_code

            return closed_pipe_exit_code()
        return _report(error, arguments)
    except ModuleNotFoundError as error:
        return _report(_missing_package(error), arguments)
    except (KeyboardInterrupt, click.Abort):
        print("haienv: interrupted; unfinished changes were not made", file=sys.stderr)
        return 130


def _missing_package(error: ModuleNotFoundError) -> EnvError:
    """Return the error for a missing optional package. Raise the error again if haienv itself is incomplete."""
    from hai.client.errors import NotGenerated, explain_error

    if isinstance(explanation := explain_error(error), NotGenerated):
        return EnvError(explanation.message, explanation.hint)
    if (error.name or "").startswith("haienv"):
        raise error
    return EnvError(f"{error.name} is not installed", _MISSING_EXTRA_HINT)


def _run(arguments: list[str], program: str) -> int:
    """Run one command line, or answer a completion of the shell. Return the exit code."""
    root = make_group()
    if instruction := os.environ.get("_HAIENV_COMPLETE"):
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, "haienv", "_HAIENV_COMPLETE", instruction)
    try:
        with root.make_context(program, arguments) as context:
            result: Any = root.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _report(error: EnvError | click.ClickException | OSError, arguments: list[str]) -> int:
    """Print an error as JSON or as text. Return its exit code."""
    if "--debug" in arguments:
        import traceback

        print(redact("".join(traceback.format_exception(error))), file=sys.stderr, end="")
    code, details = _describe_error(error)
    if _json_requested(arguments):
        print(json.dumps({"error": {**details, "exit_code": code}}), file=sys.stderr)
        return code
    # Without a terminal, the hint is on the same line: readers of logs, such as a remote build, take the last line.
    separator = "\n  hint: " if sys.stderr.isatty() else "; hint: "
    text = details["message"] + (separator + details["hint"] if details["hint"] else "")
    print(f"haienv: {text}", file=sys.stderr)
    return code


def _describe_error(
    error: EnvError | click.ClickException | OSError,
) -> tuple[int, dict[str, str]]:
    """Return the exit code of an error, and its reason, message and hint."""
    if isinstance(error, EnvError):
        details = {"reason": error.reason, "message": error.message, "hint": error.hint}
        return error.code, details
    if isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if error.errno in DISK_FULL_ERRNOS:
            return 1, {"reason": DiskFull.reason, "message": text, "hint": DISK_FULL_HINT}
        denied = isinstance(error, PermissionError)
        reason = "DENIED" if denied else "SYSTEM"
        return 4 if denied else 1, {"reason": reason, "message": text, "hint": ""}
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx:
        hint = f"`{error.ctx.command_path} --help` shows how it is used"
    reason = "USAGE" if isinstance(error, click.UsageError) else "FAILED"
    message = redact(error.format_message()).removesuffix(".")  # a hint may follow
    return error.exit_code, {"reason": reason, "message": message, "hint": hint}


def _json_requested(arguments: list[str]) -> bool:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options or "-ojson" in options or "json" in options[1:]


if __name__ == "__main__":
    sys.exit(main())
