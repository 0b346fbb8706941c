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

from hai_tui.cli.lazy import Entry, LazyGroup
from hai_tui.cli.session import connect
from hai_tui.cli.settings import Connect, Settings
from hai_tui.cli.texts import text

ENTRIES = (
    Entry("python", "program:python", "run"),
    Entry("bash", "program:bash", "run"),
    Entry("exec", "program:execute", "run"),
    Entry("run", "run:run", "run"),
    Entry("validate-schema", "run:validate_schema", "run"),
    Entry("demo", "demo:demo", "run"),
    Entry("list", "listing:listing", "tasks"),
    Entry("status", "status:status", "tasks"),
    Entry("describe", "status:describe", "tasks"),
    Entry("logs", "logs:logs", "tasks"),
    Entry("why", "queue:why", "tasks"),
    Entry("events", "queue:events", "tasks"),
    Entry("usage", "usage:usage", "tasks"),
    Entry("stop", "steer:stop", "tasks"),
    Entry("suspend", "steer:suspend", "tasks"),
    Entry("resume", "steer:resume", "tasks"),
    Entry("priority", "order:priority", "tasks"),
    Entry("rank", "order:rank", "tasks"),
    Entry("tag", "labels:tag", "tasks"),
    Entry("untag", "labels:untag", "tasks"),
    Entry("star", "labels:star", "tasks"),
    Entry("unstar", "labels:unstar", "tasks"),
    Entry("container", "container:container", "tasks"),
    Entry("shell", "shell:shell", "tasks"),
    Entry("port-forward", "port_forward:port_forward", "tasks"),
    Entry("artifact", "artifacts:artifact", "tasks"),
    Entry("tui", "tui:tui", "cluster"),
    Entry("top", "top:top", "cluster"),
    Entry("queue", "queue:queue", "cluster"),
    Entry("nodes", "nodes:nodes", "cluster"),
    Entry("groups", "groups:groups", "cluster"),
    Entry("port", "node_ports:port", "cluster"),
    Entry("workspace", "workspace:workspace", "cluster"),
    Entry("env", "env:env", "cluster"),
    Entry("dataset", "datasets:dataset", "cluster"),
    Entry("storage", "storage:storage", "cluster"),
    Entry("image", "images:image", "cluster"),
    Entry("simulate", "simulate:simulate", "cluster"),
    Entry("init", "profiles:init", "account"),
    Entry("whoami", "whoami:whoami", "account"),
    Entry("config", "profiles:config", "account"),
    Entry("token", "tokens:token", "account"),
    Entry("message", "messages:message", "account"),
    Entry("webhook", "webhooks:webhook", "account"),
    Entry("version", "version:version", "account"),
    Entry("completion", "completion:completion", "account"),
    Entry("up", "up:up", "admin"),
    Entry("down", "down:down", "admin"),
    Entry("cluster", "cluster:cluster", "admin"),
    Entry("node", "nodes:node", "admin"),
    Entry("group", "groups:group", "admin"),
    Entry("user", "users:user", "admin"),
    Entry("quota", "quotas:quota", "admin"),
    Entry("share", "shares:share", "admin"),
    Entry("right", "rights:right", "admin"),
    Entry("registry", "registries:registry", "admin"),
    Entry("audit", "audit:audit", "admin"),
    Entry("admin", "admin:admin", "admin"),
)
"""Every command: its name, where it lives, and under which heading `hai --help` lists it."""

_COMPLETE = "_HAI_COMPLETE"
"""The variable by which a completion script asks us; see `hai completion`."""

_EPILOG = "`hai COMMAND --help` tells more, with examples."


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from hai_tui.cli.commands.version import client_version

        click.echo(f"hai {client_version()}")
        ctx.exit()


def _root() -> LazyGroup:
    return LazyGroup(
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
        from hai.client.stdout import nobody_reads

        return nobody_reads()
    except Exception as error:
        from hai_tui.cli.failures import report

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

        from hai_tui.cli.bash_words import EscapingBash

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
