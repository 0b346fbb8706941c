"""`hai init` and `hai config …`: the servers that this machine knows. Tokens are never printed.

A token comes from a prompt, from standard input or from HAI_TOKEN. An argument would be visible in the history of the
shell and in every list of processes.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import click

from hai.client import profile as profiles
from hai.client.profile import Profile
from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_profiles
from hai_tui.cli.output.output import dump, note, print_rows
from hai_tui.cli.parameters import combine
from hai_tui.cli.settings import Settings
from hai_tui.formatting.table import Column, View
from hai_tui.i18n import text

_PROFILES = View(
    key="profiles",
    name=lambda p: p.name,
    empty="none.profiles",
    columns=(
        Column("current", lambda p, now: "*" if p.name == profiles.current() else ""),
        Column("profile", lambda p, now: p.name),
        Column("server", lambda p, now: p.server),
        Column("token", lambda p, now: "stored" if p.token else "none"),
        Column("ca", lambda p, now: p.ca or "-", folds=True),
        Column("insecure", lambda p, now: "yes" if p.insecure else "no"),
    ),
)

_connection = combine(
    click.option(
        "--ca",
        type=click.Path(exists=True, dir_okay=False, resolve_path=True),
        help="Certificate authority of the server.",
    ),
    click.option(
        "--insecure/--secure", default=None, help="Send plain text, even to another machine."
    ),
)


@click.command("init", cls=HaiCommand)
@click.option("--server", "--url", envvar="HAI_SERVER", metavar="HOST:PORT", help="The server.")
@_connection
@click.pass_obj
def init(settings: Settings, server: str | None, ca: str | None, insecure: bool | None) -> int:
    """Store a server and a token as a profile, after trying them.

    The token is read from HAI_TOKEN, from standard input, or asked for without echo.

    \b
    Examples:
      hai init --server hai.example.org:7450
      hai init --server hai.example.org:7450 --profile lab < token.txt
    """
    name = settings.profile or "default"
    if server is None and not sys.stdin.isatty():
        raise click.UsageError("no server is given; use --server HOST:PORT")
    address = server or click.prompt("server (host:port)", err=True)
    new = Profile(name, address, _read_token(), ca or "", bool(insecure))
    user = _fetch_user_name(new)
    profiles.save(new)
    note(settings, text("init.done", profile=name, server=address, user=user))
    return 0


def _read_token() -> str:
    """Read a token from HAI_TOKEN, a prompt or stdin. Raise UsageError if there is none."""
    if given := os.environ.get("HAI_TOKEN"):
        return given.strip()
    if sys.stdin.isatty():
        return str(click.prompt("token", hide_input=True, err=True)).strip()
    if token := sys.stdin.readline().strip():
        return token
    raise click.UsageError("no token: set HAI_TOKEN, or write it to standard input")


def _fetch_user_name(new: Profile) -> str:
    """Return the name of the user whom the token belongs to. Raise HaiError if the server refuses it."""
    import asyncio

    from hai.client.client import Client

    async def ask() -> str:
        async with Client(new) as client:
            return (await client.users.whoami()).user.name

    return asyncio.run(ask())


@click.group("config", cls=HaiGroup)
def config() -> None:
    """List, choose and change the profiles of this machine."""


@config.command("list", cls=TableCommand)
@click.pass_obj
def list_profiles(settings: Settings) -> int:
    """List profiles; * marks the current one."""
    stored = [profiles.load(name) for name in profiles.names()]
    if settings.structured:
        dump(
            settings,
            {"profiles": [_profile_fields(p) for p in stored], "current": profiles.current()},
        )
    elif settings.names_only:
        click.echo("".join(f"{p.name}\n" for p in stored), nl=False)
    elif stored:
        print_rows(settings, _PROFILES, stored)
    else:
        note(settings, text("none.profiles"))
    return 0


@config.command("show", cls=HaiCommand)
@click.argument("name", required=False, shell_complete=complete_profiles)
@click.pass_obj
def show_profile(settings: Settings, name: str | None) -> int:
    """Show a profile, by default the one in use."""
    facts = _profile_fields(profiles.load(name or settings.profile))
    if settings.structured:
        dump(settings, facts)
    else:
        click.echo(
            "".join(f"{key:<10}{_display_value(value)}\n" for key, value in facts.items()), nl=False
        )
    return 0


def _display_value(value: object) -> object:
    """Return a value as `config list` prints it."""
    return ("yes" if value else "no") if isinstance(value, bool) else value or "-"


def _profile_fields(profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name,
        "server": profile.server,
        "token": "stored" if profile.token else "none",
        "ca": profile.ca,
        "insecure": profile.insecure,
    }


@config.command("use", cls=HaiCommand)
@click.argument("name", shell_complete=complete_profiles)
@click.pass_obj
def use(settings: Settings, name: str) -> int:
    """Make a profile the current one."""
    profiles.use(name)
    note(settings, f"{name} is the current profile")
    return 0


@config.command("set", cls=HaiCommand)
@click.argument("name", shell_complete=complete_profiles)
@click.option("--server", metavar="HOST:PORT", help="The server.")
@_connection
@click.option("--token", "new_token", is_flag=True, help="Read a new token (see `hai init`).")
@click.pass_obj
def set_profile(settings: Settings, /, name: str, new_token: bool, **changes: Any) -> int:
    """Change a profile, or add one, without asking the server."""
    exists = name in profiles.names()
    stored = profiles.load(name) if exists else Profile(name)
    given = {key: value for key, value in changes.items() if value is not None}
    changed = replace(stored, **given, token=_read_token() if new_token else stored.token)
    if not changed.server:
        raise click.UsageError(f"profile {name!r} is new: give its --server")
    changed.check()
    profiles.save(changed, make_current=False)
    note(settings, f"profile {name} is stored")
    return 0


@config.command("delete", cls=HaiCommand)
@click.argument("name", shell_complete=complete_profiles)
@click.pass_obj
def delete(settings: Settings, name: str) -> int:
    """Delete a profile and its token."""
    profiles.delete(name)
    note(settings, f"profile {name} is deleted")
    return 0
