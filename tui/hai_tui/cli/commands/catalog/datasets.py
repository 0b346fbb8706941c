"""`hai dataset …`: data that tasks read, with a name and a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_datasets, complete_user_groups
from hai_tui.cli.output.output import note, show, show_one
from hai_tui.cli.settings import Settings, with_client
from hai_tui.views.storage import DATASETS

if TYPE_CHECKING:
    from hai.client.client import Client


class _Reference(click.ParamType[tuple[str, str]]):
    """A dataset on the command line: NAME[:VERSION]."""

    name = "dataset"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        name, _, version = str(value).partition(":")
        if not name:
            self.fail(f"{value!r} must be NAME[:VERSION]", param, ctx)
        return name, version


_DATASET = click.argument("dataset", type=_Reference(), shell_complete=complete_datasets)


@click.group("dataset", cls=HaiGroup)
def dataset() -> None:
    """List datasets, add them to the list and remove them."""


@dataset.command("list", cls=TableCommand)
@click.argument("name", default="")
@with_client
async def list_datasets(settings: Settings, client: Client, name: str) -> None:
    """List the datasets that you may see."""
    show(settings, DATASETS, await client.datasets.list(name))


@dataset.command("get", cls=TableCommand)
@_DATASET
@with_client
async def get(settings: Settings, client: Client, dataset: tuple[str, str]) -> None:
    """Show one dataset."""
    show_one(settings, DATASETS, await client.datasets.get(*dataset))


@dataset.command("create", cls=HaiCommand)
@_DATASET
@click.argument("path")
@click.option(
    "--visibility",
    type=click.Choice(["public", "group", "private"]),
    default="private",
    show_default=True,
    help="Who sees it; only operators may use public.",
)
@click.option("--user-group", default="", shell_complete=complete_user_groups, help="For group.")
@click.option("--bytes", "size_bytes", type=click.IntRange(0), default=0, help="How large it is.")
@click.option("--description", default="", help="What it is.")
@with_client
async def create(
    settings: Settings,
    client: Client,
    /,
    dataset: tuple[str, str],
    visibility: str,
    **fields: str | int,
) -> None:
    """Add a dataset to the list: NAME[:VERSION], and its PATH in tasks.

    The list grants no access: mount rules decide what tasks see. The version
    is `default` if none is given.

    \b
    Examples:
      hai dataset create imagenet:2012 /data/imagenet --visibility public
      hai dataset create ours /lab/ours --visibility group --user-group vision
    """
    from hai.v1.dataset_pb2 import Dataset, DatasetVisibility

    new = Dataset(
        name=dataset[0],
        version=dataset[1],
        visibility=DatasetVisibility.Value(f"DATASET_VISIBILITY_{visibility.upper()}"),
        **fields,  # type: ignore[arg-type]
    )

    show_one(settings, DATASETS, await client.datasets.create(new))


@dataset.command("delete", cls=HaiCommand)
@_DATASET
@with_client
async def delete(settings: Settings, client: Client, dataset: tuple[str, str]) -> None:
    """Remove a dataset from the list; the data stays."""
    await client.datasets.delete(*dataset)
    note(settings, f"dataset {dataset[0]} is removed from the list; the data stays")
