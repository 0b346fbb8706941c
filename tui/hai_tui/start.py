"""Starts the terminal app. An unknown page is reported before the app takes over the terminal."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from dataclasses import replace
from threading import Thread

import click

from hai.client.errors import UsageError
from hai.client.profile import Profile, load, names
from hai_tui.app import AppConfig, HaiApp
from hai_tui.page_registry import PageNotFound, find_page
from hai_tui.runtime import gc_scheduler

_HANGUP_EXIT_CODE = 128 + signal.SIGHUP


def run(profile: str | None, start: str, *, readonly: bool, demo: bool) -> int:
    """Run the app. Return 0 if the user quit and 1 if the app crashed; the terminal is restored in both cases."""
    try:
        find_page(start)
    except PageNotFound as error:
        raise click.UsageError(str(error)) from error
    if demo:
        options = _demo_config(AppConfig(readonly=readonly, start=start))
    else:
        _check_profile(profile)
        options = AppConfig(profile=profile, readonly=readonly, start=start)
    if sys.stdin.isatty():
        _exit_when_closed(sys.stdin.fileno())
    gc_scheduler.postpone_full_collections()
    app = HaiApp(options)
    code = app.run()
    return code if code is not None else (app.return_code or 0)


def _demo_config(options: AppConfig) -> AppConfig:
    from hai_tui.demo_cluster.cluster import demo

    client = asyncio.run(demo())
    return replace(
        options,
        chosen=Profile("demo", "made up", ""),
        connect=lambda profile: client,
        clock=lambda: client.world.now,
    )


def _check_profile(profile: str | None) -> None:
    """Report an unusable profile as an error of the command line. Without any profile the app asks for one."""
    if profile is not None:
        load(profile)
    elif names():
        try:
            load()
        except UsageError as error:
            if "no server is chosen" not in error.message:
                raise


def _exit_when_closed(terminal: int) -> None:
    """End the process once the other side of this file descriptor is closed.

    Only the leader of a terminal session receives SIGHUP; an app under nohup or in the pseudo terminal of a program
    does not. Textual would then read the end of input in a busy loop and wait forever to paint.
    """
    Thread(target=_wait_for_hangup, args=(terminal,), name="hangup", daemon=True).start()


def _wait_for_hangup(terminal: int) -> None:
    poll = select.poll()
    poll.register(
        terminal, 0
    )  # poll reports a hang-up without being asked; the app itself reads the input
    poll.poll()
    os._exit(_HANGUP_EXIT_CODE)
