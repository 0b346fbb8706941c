"""The `hai` command: the table of commands, and the one place where errors become exit codes.

Nothing is imported here that `hai --help` does not need.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from hai_tui.cli.client_call import connect
from hai_tui.cli.lazy import Entry, HaiCommands
from hai_tui.cli.settings import Connect, Settings
from hai_tui.i18n import text

ENTRIES = (
    Entry("python", "tasks.program:python", "run"),
    Entry("bash", "tasks.program:bash", "run"),
    Entry("exec", "tasks.program:execute", "run"),
    Entry("run", "tasks.run:run", "run"),
    Entry("validate-schema", "tasks.run:validate_schema", "run"),
    Entry("demo", "tasks.demo:demo", "run"),
    Entry("list", "tasks.list:listing", "tasks"),
    Entry("status", "tasks.status:status", "tasks"),
    Entry("describe", "tasks.status:describe", "tasks"),
    Entry("logs", "tasks.logs:logs", "tasks"),
    Entry("why", "tasks.queue:why", "tasks"),
    Entry("events", "tasks.queue:events", "tasks"),
    Entry("usage", "tasks.usage:usage", "tasks"),
    Entry("stop", "tasks.lifecycle:stop", "tasks"),
    Entry("suspend", "tasks.lifecycle:suspend", "tasks"),
    Entry("resume", "tasks.lifecycle:resume", "tasks"),
    Entry("priority", "tasks.priority:priority", "tasks"),
    Entry("rank", "tasks.priority:rank", "tasks"),
    Entry("tag", "tasks.labels:tag", "tasks"),
    Entry("untag", "tasks.labels:untag", "tasks"),
    Entry("star", "tasks.labels:star", "tasks"),
    Entry("unstar", "tasks.labels:unstar", "tasks"),
    Entry("container", "catalog.container:container", "tasks"),
    Entry("shell", "tasks.shell:shell", "tasks"),
    Entry("port-forward", "tasks.port_forward:port_forward", "tasks"),
    Entry("artifact", "catalog.artifacts:artifact", "tasks"),
    Entry("tui", "cluster.tui:tui", "cluster"),
    Entry("top", "tasks.top:top", "cluster"),
    Entry("queue", "tasks.queue:queue", "cluster"),
    Entry("nodes", "cluster.nodes:nodes", "cluster"),
    Entry("groups", "cluster.groups:groups", "cluster"),
    Entry("port", "catalog.ports:port", "cluster"),
    Entry("workspace", "catalog.workspace:workspace", "cluster"),
    Entry("env", "catalog.env:env", "cluster"),
    Entry("dataset", "catalog.datasets:dataset", "cluster"),
    Entry("storage", "catalog.storage:storage", "cluster"),
    Entry("image", "catalog.images:image", "cluster"),
    Entry("simulate", "cluster.simulate:simulate", "cluster"),
    Entry("init", "accounts.profiles:init", "account"),
    Entry("whoami", "accounts.whoami:whoami", "account"),
    Entry("config", "accounts.profiles:config", "account"),
    Entry("token", "accounts.tokens:token", "account"),
    Entry("message", "accounts.messages:message", "account"),
    Entry("webhook", "accounts.webhooks:webhook", "account"),
    Entry("version", "cluster.version:version", "account"),
    Entry("completion", "cluster.completion:completion", "account"),
    Entry("up", "cluster.up:up", "admin"),
    Entry("down", "cluster.down:down", "admin"),
    Entry("cluster", "cluster.cluster:cluster", "admin"),
    Entry("node", "cluster.nodes:node", "admin"),
    Entry("group", "cluster.groups:group", "admin"),
    Entry("user", "accounts.users:user", "admin"),
    Entry("quota", "accounts.quotas:quota", "admin"),
    Entry("share", "accounts.shares:share", "admin"),
    Entry("right", "accounts.rights:right", "admin"),
    Entry("registry", "catalog.registries:registry", "admin"),
    Entry("audit", "accounts.audit:audit", "admin"),
    Entry("admin", "cluster.admin:admin", "admin"),
)
"""Every command: its name, where it lives, and under which heading `hai --help` lists it."""

_COMPLETE = "_HAI_COMPLETE"
"""The variable by which a completion script asks us; see `hai completion`."""

_EPILOG = "`hai COMMAND --help` tells more, with examples."


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from hai_tui.cli.commands.cluster.version import client_version

        click.echo(f"hai {client_version()}")
        ctx.exit()


def _root() -> HaiCommands:
    return HaiCommands(
        name="hai",
        entries=ENTRIES,
        help=text("about"),
        epilog=_EPILOG,
        invoke_without_command=True,
        callback=_help_without_command,
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
        callback=_version,
        help="Print the version of this client.",
    )
    return [*COMMON, version]


@click.pass_context
def _help_without_command(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(
    argv: Sequence[str] | None = None,
    *,
    connect: Connect = connect,
    clock: Callable[[], float] = time.time,
) -> int:
    """Run one command line; the exit code is returned. Tests give their own connect and clock."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    settings = Settings(connect, clock)
    _open_what_is_closed()
    _print_every_letter()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we say what failed, in one sentence
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


def _open_what_is_closed() -> None:
    """`hai list >&-`: Python then has no stream there; nothing is read, what is printed is lost."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _print_every_letter() -> None:
    """A letter that the terminal's encoding lacks is written as an escape, never an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str], settings: Settings) -> int:
    """Like click's own main, which would hide errors, broken pipes and Ctrl-C from us."""
    root = _root()
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import add_completion_class, shell_complete

        from hai_tui.cli.bash_completion import EscapingBash

        add_completion_class(EscapingBash)
        return shell_complete(root, {"obj": settings}, "hai", _COMPLETE, instruction)
    try:
        with root.make_context("hai", arguments, obj=settings) as context:
            result: Any = root.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
