"""From the command to the running app. A word that opens nothing is told of before the screen is taken."""

from __future__ import annotations

import click

from hai.client.errors import UsageError
from hai.client.profile import load, names
from hai_tui.app import HaiApp, Options
from hai_tui.pages import NoSuchPage, find


def run(profile: str | None, start: str, readonly: bool) -> int:
    """Run the app; 0 when it was left, 1 when it crashed (the terminal is as before in both cases)."""
    try:
        find(start)
    except NoSuchPage as error:
        raise click.UsageError(str(error)) from error
    if profile is not None:
        load(profile)  # a wrong name is an error of the command line
    elif names():
        _check()
    app = HaiApp(Options(profile=profile, readonly=readonly, start=start))
    code = app.run()
    return code if code is not None else (app.return_code or 0)


def _check() -> None:
    """Stored profiles that can not be used are said so here; without any the app asks for one."""
    try:
        load()
    except UsageError as error:
        if "no server is chosen" not in error.message:
            raise
