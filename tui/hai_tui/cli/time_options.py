"""Callbacks of options that take a point in time."""

from __future__ import annotations

from datetime import datetime

import click

from hai_tui.cli.settings import Settings
from hai_tui.formatting.values import deadline, past_time


def before_now(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Reads an option that takes a `past_time`."""
    return past_time(value, _clock(ctx)) if value else None


def after_now(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Reads an option that takes a `deadline`."""
    return deadline(value, _clock(ctx)) if value else None


def _clock(ctx: click.Context) -> float:
    return ctx.ensure_object(Settings).clock()
