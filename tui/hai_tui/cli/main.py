"""The `hai` command: the table of commands, and the place where every error becomes an exit code.

This module imports only what `hai --help` needs.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from hai.command_line import LazyGroup
from hai_tui.cli.settings import Connect, Settings, connect
from hai_tui.i18n import text


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: its name, where it is defined (`module:attribute` below hai_tui.cli.commands), its section in help."""

    name: str
    target: str
    section: str


def summary(name: str) -> str:
    """Return one sentence about a command."""
    return text(f"cmd.{name}")


class HaiCommands(LazyGroup):
    """The commands of `hai`. Help lists them by section; unknown names of other systems get a hint."""

    def __init__(self, *, entries: Sequence[CommandEntry], **attrs: Any) -> None:
        targets = {entry.name: entry.target for entry in entries}
        super().__init__(package="hai_tui.cli.commands", targets=targets, summary=summary, **attrs)
        self._entries = entries

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. An unknown name raises an error that names the equivalent here, or similar names."""
        name = args[0]
        if name not in self.targets and not name.startswith("-") and not ctx.resilient_parsing:
            raise self._unknown_command_error(ctx, name)
        return super().resolve_command(ctx, args)

    def _unknown_command_error(self, ctx: click.Context, name: str) -> click.UsageError:
        from hai_tui.cli.migration_hints import COMMAND_EQUIVALENTS

        if name in COMMAND_EQUIVALENTS:
            message = f"no such command {name!r}; here that is `{COMMAND_EQUIVALENTS[name]}`"
            return click.UsageError(message, ctx=ctx)
        return click.NoSuchCommand(name, possibilities=self.targets, ctx=ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, one section after the other."""
        for section in dict.fromkeys(entry.section for entry in self._entries):
            names = [entry.name for entry in self._entries if entry.section == section]
            with formatter.section(text(f"section.{section}")):
                formatter.write_dl([(name, summary(name)) for name in names])


ENTRIES = (
    CommandEntry("python", "tasks.program:python", "run"),
    CommandEntry("bash", "tasks.program:bash", "run"),
    CommandEntry("exec", "tasks.program:execute", "run"),
    CommandEntry("run", "tasks.run:run", "run"),
    CommandEntry("validate-schema", "tasks.run:validate_schema", "run"),
    CommandEntry("demo", "tasks.demo:demo", "run"),
    CommandEntry("list", "tasks.list:list_tasks", "tasks"),
    CommandEntry("status", "tasks.status:status", "tasks"),
    CommandEntry("describe", "tasks.status:describe", "tasks"),
    CommandEntry("logs", "tasks.logs:logs", "tasks"),
    CommandEntry("why", "tasks.queue:why", "tasks"),
    CommandEntry("events", "tasks.queue:events", "tasks"),
    CommandEntry("usage", "tasks.usage:usage", "tasks"),
    CommandEntry("stop", "tasks.lifecycle:stop", "tasks"),
    CommandEntry("suspend", "tasks.lifecycle:suspend", "tasks"),
    CommandEntry("resume", "tasks.lifecycle:resume", "tasks"),
    CommandEntry("priority", "tasks.priority:priority", "tasks"),
    CommandEntry("rank", "tasks.priority:rank", "tasks"),
    CommandEntry("tag", "tasks.labels:tag", "tasks"),
    CommandEntry("untag", "tasks.labels:untag", "tasks"),
    CommandEntry("star", "tasks.labels:star", "tasks"),
    CommandEntry("unstar", "tasks.labels:unstar", "tasks"),
    CommandEntry("container", "catalog.container:container", "tasks"),
    CommandEntry("shell", "tasks.shell:shell", "tasks"),
    CommandEntry("port-forward", "tasks.port_forward:port_forward", "tasks"),
    CommandEntry("artifact", "catalog.artifacts:artifact", "tasks"),
    CommandEntry("tui", "cluster.tui:tui", "cluster"),
    CommandEntry("top", "tasks.top:top", "cluster"),
    CommandEntry("queue", "tasks.queue:queue", "cluster"),
    CommandEntry("nodes", "cluster.nodes:nodes", "cluster"),
    CommandEntry("groups", "cluster.groups:groups", "cluster"),
    CommandEntry("port", "catalog.ports:port", "cluster"),
    CommandEntry("workspace", "catalog.workspace:workspace", "cluster"),
    CommandEntry("env", "catalog.env:env", "cluster"),
    CommandEntry("dataset", "catalog.datasets:dataset", "cluster"),
    CommandEntry("storage", "catalog.storage:storage", "cluster"),
    CommandEntry("image", "catalog.images:image", "cluster"),
    CommandEntry("simulate", "cluster.simulate:simulate", "cluster"),
    CommandEntry("init", "accounts.profiles:init", "account"),
    CommandEntry("whoami", "accounts.whoami:whoami", "account"),
    CommandEntry("config", "accounts.profiles:config", "account"),
    CommandEntry("token", "accounts.tokens:token", "account"),
    CommandEntry("message", "accounts.messages:message", "account"),
    CommandEntry("webhook", "accounts.webhooks:webhook", "account"),
    CommandEntry("version", "cluster.version:version", "account"),
    CommandEntry("completion", "cluster.completion:completion", "account"),
    CommandEntry("up", "cluster.up:up", "admin"),
    CommandEntry("down", "cluster.down:down", "admin"),
    CommandEntry("cluster", "cluster.cluster:cluster", "admin"),
    CommandEntry("node", "cluster.nodes:node", "admin"),
    CommandEntry("group", "cluster.groups:group", "admin"),
    CommandEntry("user", "accounts.users:user", "admin"),
    CommandEntry("quota", "accounts.quotas:quota", "admin"),
    CommandEntry("share", "accounts.shares:share", "admin"),
    CommandEntry("right", "accounts.rights:right", "admin"),
    CommandEntry("registry", "catalog.registries:registry", "admin"),
    CommandEntry("audit", "accounts.audit:audit", "admin"),
    CommandEntry("admin", "cluster.admin:admin", "admin"),
)
"""Every command of `hai`."""

_COMPLETION_VARIABLE = "_HAI_COMPLETE"
"""The environment variable by which a completion script asks for values; see `hai completion`."""

_EPILOG = "`hai COMMAND --help` shows more, with examples."


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from hai_tui.cli.commands.cluster.version import client_version

        click.echo(f"hai {client_version()}")
        ctx.exit()


def make_root() -> HaiCommands:
    return HaiCommands(
        name="hai",
        entries=ENTRIES,
        help=text("about"),
        epilog=_EPILOG,
        invoke_without_command=True,
        callback=_print_help_without_command,
        context_settings={"help_option_names": ["-h", "--help"]},
        params=_root_options(),
    )


def _root_options() -> list[click.Parameter]:
    from hai_tui.cli.command import COMMON

    version = click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Print the version of this client.",
    )
    return [*COMMON, version]


@click.pass_context
def _print_help_without_command(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(
    argv: Sequence[str] | None = None,
    *,
    connect: Connect = connect,
    clock: Callable[[], float] = time.time,
) -> int:
    """Run one command line and return the exit code. Tests pass their own `connect` and `clock`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    settings = Settings(connect, clock)
    _open_closed_streams()
    _escape_unencodable()
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # we print the errors of gRPC, so it must not log them
    try:
        code = _run(arguments, settings)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        from hai.command_line import closed_pipe_exit_code

        return closed_pipe_exit_code()
    except Exception as error:
        from hai_tui.cli.errors import report

        return report(error, settings, arguments)
    except KeyboardInterrupt:
        click.echo(text("interrupted"), err=True)
        return 130


def _open_closed_streams() -> None:
    """Replace missing streams, as after `hai list >&-`, by /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _escape_unencodable() -> None:
    """Print characters that the terminal's encoding lacks as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str], settings: Settings) -> int:
    """Run the command like click's own `main`, which would hide errors, broken pipes and Ctrl-C from us."""
    root = make_root()
    if instruction := os.environ.get(_COMPLETION_VARIABLE):
        from click.shell_completion import add_completion_class, shell_complete

        from hai_tui.cli.commands.cluster.completion import EscapingBash

        add_completion_class(EscapingBash)
        return shell_complete(root, {"obj": settings}, "hai", _COMPLETION_VARIABLE, instruction)
    try:
        with root.make_context("hai", arguments, obj=settings) as context:
            result: Any = root.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
