"""Prints results in the format that the user asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai_tui.formatting.table import View, cells, plain, without_empty
from hai_tui.i18n import text
from hai_tui.views import QUEUE_TASKS

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from hai.client.errors import HaiError
    from hai_tui.cli.settings import Settings


def show(
    settings: Settings,
    view: View,
    items: Sequence[Message],
    more: Mapping[str, object] | None = None,
) -> None:
    """Print a list. `more` adds fields to the object of JSON and YAML."""
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        dump(settings, {view.key: [to_dict(item) for item in items], **(more or {})})
    elif settings.names_only:
        click.echo("".join(f"{view.name(item)}\n" for item in items), nl=False)
    elif not items:
        note(settings, text(view.empty))
    else:
        print_rows(settings, view, items)


def show_one(settings: Settings, view: View, item: Message) -> None:
    """Print one item with all columns. JSON and YAML are the item itself, not a list."""
    if settings.structured:
        dump_message(settings, item)
    else:
        show(settings, view.with_all_columns(), [item])


def dump_message(settings: Settings, message: Message) -> None:
    """Print a message as JSON or YAML."""
    from hai_tui.formatting.documents import to_dict

    dump(settings, to_dict(message))


def print_rows(settings: Settings, view: View, items: Sequence[Any]) -> None:
    """Print rows for people: with colours and folded cells on a terminal, as plain lines in a pipe."""
    columns = view.chosen(settings.columns, settings.output == "wide")
    rows = cells(columns, items, settings.clock())
    if not settings.columns:
        columns, rows = without_empty(columns, rows)
    if settings.decorated:
        from hai_tui.cli.output.rich_table import print_table

        print_table(settings, columns, rows)
    else:
        click.echo(plain(columns, rows, settings.headers), nl=False)


def dump(settings: Settings, value: object) -> None:
    """Print data as YAML if that was asked for, else as JSON."""
    if settings.output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def note(settings: Settings, sentence: str) -> None:
    """Print a sentence for people to stderr, so that a pipe receives data only. Print nothing with --quiet."""
    if not settings.quiet:
        click.echo(sentence, err=True)


def note_warnings(settings: Settings, *warnings: str) -> None:
    """Print the sentences that are not empty."""
    for warning in filter(None, warnings):
        note(settings, warning)


def note_lost_connection(settings: Settings) -> Callable[[HaiError], None]:
    """Return a callback for streams. It notes that the server does not answer."""
    return lambda error: note(settings, text("follow.lost", error=error.message))


def note_cut_queue(settings: Settings, queue: Sequence[Any]) -> None:
    """Note that the queue is longer than what is listed."""
    if len(queue) >= QUEUE_TASKS:
        note(
            settings,
            f"only the first {QUEUE_TASKS} are listed; `hai list state:queued -a` lists all",
        )
