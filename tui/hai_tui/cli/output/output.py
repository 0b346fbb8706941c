"""Prints answers in the format that the user asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai_tui.formatting.table import Column, View, cells, plain
from hai_tui.i18n import text
from hai_tui.views import QUEUE_TASKS

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from hai.client.errors import HaiError
    from hai_tui.cli.settings import Settings

_STRUCTURED = ("json", "yaml")


def show(
    settings: Settings,
    view: View,
    items: Sequence[Message],
    more: Mapping[str, object] | None = None,
) -> None:
    """A list of things. `more` is added to the object of JSON and YAML."""
    if settings.output in _STRUCTURED:
        from hai_tui.formatting.documents import to_dict

        dump(settings, {view.key: [to_dict(item) for item in items], **(more or {})})
    elif settings.output == "name" or settings.quiet:
        click.echo("".join(f"{view.name(item)}\n" for item in items), nl=False)
    elif not items:
        note(settings, text(view.empty))
    else:
        table(settings, view, items)


def show_one(settings: Settings, view: View, item: Message) -> None:
    """One thing; JSON and YAML are the thing itself."""
    if settings.output in _STRUCTURED:
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(item))
    else:
        show(settings, view.with_all_columns(), [item])


def table(settings: Settings, view: View, items: Sequence[Any]) -> None:
    """Rows for people: decorated on a terminal, plain in a pipe."""
    columns = view.chosen(settings.columns, settings.output == "wide")
    rows = cells(columns, items, settings.clock())
    if settings.decorated:
        _rich(settings, columns, rows)
    else:
        click.echo(plain(columns, rows, settings.headers), nl=False)


def dump(settings: Settings, value: object) -> None:
    """Data as JSON, or as YAML when that was asked for."""
    if settings.output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def note(settings: Settings, sentence: str) -> None:
    """Something for a person: to stderr, so that a pipe gets data only; nothing with --quiet."""
    if not settings.quiet:
        click.echo(sentence, err=True)


def warn(settings: Settings, *warnings: str) -> None:
    """Notes; an empty sentence is no warning."""
    for warning in filter(None, warnings):
        note(settings, warning)


def note_lost_connection(settings: Settings) -> Callable[[HaiError], None]:
    """For streams that outlive their server: notes that it stays away."""
    return lambda error: note(settings, text("follow.lost", error=error.message))


def note_cut(settings: Settings, queue: Sequence[Any]) -> None:
    """That a queue goes on behind what is listed."""
    if len(queue) >= QUEUE_TASKS:
        note(settings, f"these are the first {QUEUE_TASKS}; `hai list state:queued -a` lists all")


def _rich(settings: Settings, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from hai_tui.cli.output.rich_table import print_table

    print_table(settings, columns, rows)
