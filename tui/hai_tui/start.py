"""Starts the app. An unknown page is reported before the app takes over the terminal."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import click

from hai.client.errors import UsageError
from hai.client.profile import Profile, load, names
from hai_tui.app import AppConfig, HaiApp
from hai_tui.page_registry import PageNotFound, find_page
from hai_tui.runtime import gc_scheduler, terminal_watchdog


def run(profile: str | None, start: str, *, readonly: bool, made_up: bool) -> int:
    """Run the app; 0 when it was left, 1 when it crashed (the terminal is as before in both cases)."""
    try:
        find_page(start)
    except PageNotFound as error:
        raise click.UsageError(str(error)) from error
    if made_up:
        options = _demo(AppConfig(readonly=readonly, start=start))
    else:
        _check(profile)
        options = AppConfig(profile=profile, readonly=readonly, start=start)
    if sys.stdin.isatty():
        terminal_watchdog.end_with(sys.stdin.fileno())
    gc_scheduler.postpone_full_collections()
    app = HaiApp(options)
    code = app.run()
    return code if code is not None else (app.return_code or 0)


def _demo(options: AppConfig) -> AppConfig:
    from hai_tui.demo.cluster import demo

    client = asyncio.run(demo())
    return replace(
        options,
        chosen=Profile("demo", "made up", ""),
        connect=lambda profile: client,
        clock=lambda: client.world.now,
    )


def _check(profile: str | None) -> None:
    """Report an unusable profile as an error of the command line. Without any profile the app asks for one."""
    if profile is not None:
        load(profile)
    elif names():
        _check_stored()


def _check_stored() -> None:
    try:
        load()
    except UsageError as error:
        if "no server is chosen" not in error.message:
            raise
